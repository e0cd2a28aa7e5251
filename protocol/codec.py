"""One codec: a version byte, then one MessagePack array whose first element names the message."""

from __future__ import annotations

import msgspec

from drumline.errors import DecodeError
from protocol.messages import VERSION, AnyMessage, Message

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_HEAD = bytes([VERSION])


def encode(message: Message) -> bytes:
    return _HEAD + _encoder.encode(message)


def decode(frame: bytes) -> AnyMessage:
    """The message in a frame. Whatever else is in it, there is one error."""
    if not frame:
        raise DecodeError(reason="the frame is empty")
    if frame[0] != VERSION:
        raise DecodeError(reason=f"protocol version {frame[0]}, this is version {VERSION}")
    try:
        return _decoder.decode(memoryview(frame)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(reason=str(error)) from None
