"""Encodes and decodes messages: a version byte, then a MessagePack array that begins with the
message's name."""

from __future__ import annotations

import msgspec

from drumline.errors import DecodeError
from protocol.messages import VERSION, AnyMessage, Message

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_VERSION_BYTE = bytes([VERSION])


def encode(message: Message) -> bytes:
    return _VERSION_BYTE + _encoder.encode(message)


def decode(frame: bytes) -> AnyMessage:
    """Decode a frame. Every invalid frame raises DecodeError."""
    if not frame:
        raise DecodeError(reason="the frame is empty")
    if frame[0] != VERSION:
        raise DecodeError(reason=f"protocol version {frame[0]}, expected version {VERSION}")
    try:
        return _decoder.decode(memoryview(frame)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(reason=str(error)) from None
