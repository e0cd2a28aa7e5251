"""The codec: messages are decoded as they were encoded; anything else is a DecodeError."""

import random
import tracemalloc
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from drumline.client import control
from drumline.errors import DecodeError
from protocol import codec
from protocol.messages import VERSION, AnyMessage, DispatcherReply, Feed, Message, Unregister
from tests.protocol.samples import mutated, replaced, sample

IN_UNKNOWN_FIELD = codec.encode(DispatcherReply(1))[:-3] + b"\x81\xa1a"
"""The beginning of a reply whose queue status has an unknown field: anything may follow."""
KINDS: tuple[type[Message], ...] = get_args(AnyMessage)


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_is_decoded_as_it_was_encoded(kind: type[Message]) -> None:
    chance = random.Random(kind.__name__)
    for _ in range(200):
        message = sample(kind, chance)
        assert codec.decode(codec.encode(message)) == message


def test_messages_are_distinguished_by_their_names() -> None:
    assert len({codec.encode(sample(kind, random.Random(1)))[:12] for kind in KINDS}) == len(KINDS)
    assert set(KINDS) == set(Message.__subclasses__()), "AnyMessage leaves one out"


def count_decodable(
    frames: list[bytes], decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]
) -> int:
    """The number of frames that were decoded; errors other than DecodeError are raised."""
    read = 0
    for frame in frames:
        try:
            message = decode(frame)
        except DecodeError as error:
            assert str(error).startswith("A message could not be read: ")
        else:
            read += 1
            encode(message)  # fails if the message is incomplete
    return read


@pytest.mark.parametrize("seed", range(4))
def test_damaged_frames(seed: int) -> None:
    chance = random.Random(seed)
    good = [codec.encode(sample(kind, chance)) for kind in KINDS for _ in range(20)]
    frames = [mutated(chance.choice(good), chance) for _ in range(20_000)]
    read = count_decodable(frames, codec.decode, codec.encode)
    assert 0 < read < 10_000, "either all or no damaged frames were decoded"


@pytest.mark.parametrize("seed", range(2))
def test_frames_with_wrong_content(seed: int) -> None:
    chance = random.Random(seed)
    good = [codec.encode(sample(kind, chance)) for kind in KINDS for _ in range(20)]
    whole = [msgspec.msgpack.decode(frame[1:]) for frame in good]
    frames = [
        bytes([VERSION]) + msgspec.msgpack.encode(replaced(chance.choice(whole), chance))
        for _ in range(5_000)
    ]
    read = count_decodable(frames, codec.decode, codec.encode)
    assert 0 < read < 2_500


def test_random_bytes() -> None:
    chance = random.Random(7)
    frames = [chance.randbytes(chance.randrange(60)) for _ in range(5_000)]
    frames += [bytes([VERSION]) + chance.randbytes(chance.randrange(60)) for _ in range(10_000)]
    assert count_decodable(frames, codec.decode, codec.encode) == 0


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "empty"),
        (bytes([VERSION + 1]) + codec.encode(Unregister())[1:], f"version {VERSION + 1}"),
        (bytes([VERSION]), "truncated"),
        (codec.encode(Unregister()) + b"\x00", "trailing"),
        (bytes([VERSION]) + msgspec.msgpack.encode(["Nobody"]), "Nobody"),
        (bytes([VERSION]) + msgspec.msgpack.encode(["Unregister", "more"]), "length"),
        (bytes([VERSION]) + msgspec.msgpack.encode(["Register", "worker"]), "length"),
        (bytes([VERSION]) + msgspec.msgpack.encode(["Feed", [[1, 2, 3]]]), "length"),
        (bytes([VERSION]) + msgspec.msgpack.encode({"type": "Unregister"}), "array"),
    ],
)
def test_the_error_names_the_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=f"(?i){reason}"):
        codec.decode(frame)


def test_a_deeply_nested_frame_is_refused() -> None:
    head = IN_UNKNOWN_FIELD
    with pytest.raises(DecodeError):
        codec.decode(head + b"\x91" * 100_000)


@pytest.mark.parametrize(
    "head",
    [
        IN_UNKNOWN_FIELD + b"\xdd\xff\xff\xff\xff",
        IN_UNKNOWN_FIELD + b"\xdf\xff\xff\xff\xff",
        IN_UNKNOWN_FIELD + b"\xc6\xff\xff\xff\xff",
        codec.encode(Feed(()))[:-2] + b"\xdd\xff\xff\xff\xff",
    ],
)
def test_a_false_length_allocates_no_memory(head: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            codec.decode(head + b"\x01" * 100)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


# --- the control socket ------------------------------------------------------------------------


def test_requests_and_replies_are_decoded_as_they_were_encoded() -> None:
    chance = random.Random(3)
    answers = msgspec.msgpack.Decoder(control.ControlReply)
    for _ in range(200):
        request = msgspec.structs.replace(
            sample(control.ControlRequest, chance), version=control.VERSION
        )
        assert control.decode_request(control.encode(request)) == request
        answer = sample(control.ControlReply, chance)
        assert answers.decode(control.encode(answer)) == answer


def test_damaged_requests() -> None:
    chance = random.Random(4)
    request = control.ControlRequest("id", "batch.show", {"batch_id": 7, "deep": [{"x": None}]})
    good = control.encode(request)
    frames = [mutated(good, chance) for _ in range(20_000)]
    frames += [chance.randbytes(chance.randrange(40)) for _ in range(5_000)]
    assert count_decodable(frames, control.decode_request, control.encode) > 0


def test_a_request_of_another_version_is_refused() -> None:
    request = control.ControlRequest("id", "batch.show", {}, version=control.VERSION + 1)
    with pytest.raises(DecodeError, match=f"version {control.VERSION + 1}"):
        control.decode_request(control.encode(request))
