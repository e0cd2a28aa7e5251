"""Messages exchanged with the reference implementation of MessagePack.

It follows the tables of SPEC.md alone, as a client in another language would.
"""

import random
import socket
import struct
from collections.abc import Callable
from typing import Any, get_args

import msgpack
import msgspec
import pytest

from drumline.client import control
from drumline.domain import task
from drumline.runner.frames import Channel, Frame, ToKeeper, ToRunner, encode_frame
from protocol import codec
from protocol.messages import VERSION, AnyMessage, Message
from tests.protocol.samples import sample
from tests.protocol.spec import fields_of, is_map, layout, made, written

MESSAGES: tuple[type[Message], ...] = get_args(AnyMessage)
FRAMES: tuple[type[Frame], ...] = (*get_args(ToRunner), *get_args(ToKeeper))
DECODERS: dict[type[msgspec.Struct], Callable[[bytes], Any]] = {
    control.ControlRequest: control.decode_request,
    control.ControlReply: msgspec.msgpack.Decoder(control.ControlReply).decode,
    task.TaskBody: task.decode_task_body,
    task.BatchInfo: task.decode_batch_info,
    task.RunInfo: task.decode_run_info,
}
ROUNDS = 50


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False)


def pack(value: Any, chance: random.Random) -> bytes:
    """With floats of 64 or of 32 bits, as clients differ."""
    data = msgpack.packb(value, use_single_float=chance.random() < 0.5)
    assert isinstance(data, bytes)
    return data


def named(kind: type[msgspec.Struct], chance: random.Random) -> list[Any]:
    return [kind.__name__, *made(kind.__name__, chance)]


@pytest.mark.parametrize("kind", MESSAGES)
def test_msgpack_reads_every_message(kind: type[Message]) -> None:
    chance = random.Random(kind.__name__)
    for _ in range(ROUNDS):
        message = sample(kind, chance)
        frame = codec.encode(message)
        assert frame[0] == VERSION
        assert unpack(frame[1:]) == [kind.__name__, *written(kind.__name__, message)]


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_written_with_msgpack_is_read(kind: type[Message]) -> None:
    chance = random.Random(kind.__name__)
    for _ in range(ROUNDS):
        values = named(kind, chance)
        message = codec.decode(bytes([VERSION]) + pack(values, chance))
        assert type(message) is kind
        assert [kind.__name__, *written(kind.__name__, message)] == values


@pytest.mark.parametrize("kind", MESSAGES)
def test_fields_at_the_end_that_have_a_default_may_be_missing(kind: type[Message]) -> None:
    chance = random.Random(kind.__name__)
    values, fields = named(kind, chance), fields_of(kind.__name__)
    while fields and fields[-1].default is not None:
        fields.pop()
        values.pop()
        message = codec.decode(bytes([VERSION]) + pack(values, chance))
        assert [*written(kind.__name__, message)][: len(fields)] == values[1:]
        left_out = kind.__struct_fields__[len(fields) :]
        defaults = kind.__struct_defaults__[-len(left_out) :]
        assert tuple(getattr(message, name) for name in left_out) == defaults


@pytest.mark.parametrize("kind", FRAMES)
def test_msgpack_reads_every_frame_of_the_runner(kind: type[Frame]) -> None:
    chance = random.Random(kind.__name__)
    for _ in range(ROUNDS):
        frame = sample(kind, chance)
        data = encode_frame(frame)
        assert struct.unpack("<I", data[:4]) == (len(data) - 4,)
        assert unpack(data[4:]) == [kind.__name__, *written(kind.__name__, frame)]


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_written_with_msgpack_is_read(kind: type[Frame]) -> None:
    chance = random.Random(kind.__name__)
    here, there = socket.socketpair()
    with here, there:
        channel = Channel(there, ToRunner if kind in get_args(ToRunner) else ToKeeper)
        for _ in range(ROUNDS):
            values = named(kind, chance)
            data = pack(values, chance)
            here.sendall(struct.pack("<I", len(data)) + data)
            received = channel.receive()
            assert received is not None
            (frame,) = received
            assert type(frame) is kind
            assert [kind.__name__, *written(kind.__name__, frame)] == values


@pytest.mark.parametrize("kind", DECODERS)
def test_requests_and_bodies_are_read_both_ways(kind: type[msgspec.Struct]) -> None:
    """The control socket, and the bytes inside a DueTask."""
    chance = random.Random(kind.__name__)
    name, encode, decode = kind.__name__, msgspec.msgpack.Encoder().encode, DECODERS[kind]
    for _ in range(ROUNDS):
        value = sample(kind, chance)
        assert unpack(encode(value)) == written(name, value)
        values = made(name, chance)
        if kind is control.ControlRequest:
            values[3] = control.VERSION
        assert written(name, decode(pack(layout(name, values), chance))) == layout(name, values)


@pytest.mark.parametrize("kind", [control.ControlRequest, control.ControlReply])
def test_a_client_may_leave_out_what_has_a_default(kind: type[msgspec.Struct]) -> None:
    assert is_map(kind.__name__)
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    values = dict(zip(kind.__struct_fields__, made(kind.__name__, random.Random(1)), strict=True))
    data = msgpack.packb({name: values[name] for name in required})
    assert isinstance(data, bytes)
    assert DECODERS[kind](data) == kind(**{name: values[name] for name in required})
