"""Submissions of any length, cut into chunks that fit into one message and one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from drumline.client.control import encode
from drumline.command_layer.fields import invalid_field
from drumline.command_layer.targets import CHUNK_BYTES, CHUNK_SIZE, Target
from drumline.errors import WrongUse


class Encoded(NamedTuple):
    """One target or param, ready to be sent."""

    number: int
    """Its position in its source: an index, or a line of a file."""
    data: bytes
    read: int = 0
    """How many bytes of the file have been read up to here."""


class Chunk(msgspec.Struct, frozen=True):
    """A part of a submission, as arguments of a command."""

    arguments: dict[str, Any]
    done: int = 0
    """Progress up to its end: tasks, or bytes of a file."""
    source: str = ""
    """What precedes a number in an error message, such as `june.jsonl line`."""
    numbers: Sequence[int] = ()

    @contextmanager
    def naming_source(self) -> Iterator[None]:
        """The gateway counts the targets of one message; errors name the place in the source."""
        try:
            yield
        except WrongUse as error:
            index, reason = error.details.get("index"), error.details.get("reason")
            if index is None or reason is None or not self.numbers:
                raise
            number = self.numbers[index]
            field = {name: value for name, value in error.details.items() if name == "field"}
            raise WrongUse(**field, reason=reason).within(
                f"{self.source} {number}", index=number
            ) from None


def cut(source: str, items: Iterable[Encoded], argument: str) -> Iterator[Chunk]:
    """Chunks of at most CHUNK_SIZE items and about CHUNK_BYTES."""
    packed: list[msgspec.Raw] = []
    numbers: list[int] = []
    size = 0
    for number, data, read in items:
        packed.append(msgspec.Raw(data))
        numbers.append(number)
        size += len(data)
        if len(packed) == CHUNK_SIZE or size >= CHUNK_BYTES:
            yield Chunk({argument: packed}, read, source, numbers)
            packed, numbers, size = [], [], 0
    if packed:
        yield Chunk({argument: packed}, read, source, numbers)


def of_count(count: int) -> Iterator[Chunk]:
    """A number of identical tasks."""
    for done in range(0, count, CHUNK_SIZE):
        n = min(CHUNK_SIZE, count - done)
        yield Chunk({"count": n}, done + n)


def of_targets(targets: Iterable[Mapping[str, Any] | str | Target]) -> Iterator[Chunk]:
    """One task for each target."""
    if isinstance(targets, str | Mapping):
        raise WrongUse(reason=f"targets must be many: a list or a generator, not {targets!r:.60}")
    encoded = (
        Encoded(i, _encode(f"target {i}", _target(i, target))) for i, target in enumerate(targets)
    )
    return cut("target", encoded, "targets")


def of_params(params: Iterable[Any], instances: Iterable[str | None] | None) -> Iterator[Chunk]:
    """One task for each param, and its instance id if there are any."""
    ids = None if instances is None else iter(instances)
    encoded = (Encoded(i, _encode(f"param {i}", param)) for i, param in enumerate(params))
    for chunk in cut("param", encoded, "params"):
        if ids is None:
            yield chunk
            continue
        some = list(islice(ids, len(chunk.numbers)))
        if len(some) < len(chunk.numbers):
            raise WrongUse(field="instances", reason="there are fewer instances than params")
        yield msgspec.structs.replace(chunk, arguments=chunk.arguments | {"instance_ids": some})
    if ids is not None and list(islice(ids, 1)):
        raise WrongUse(field="instances", reason="there are more instances than params")


def _target(index: int, target: object) -> Target:
    if isinstance(target, str):
        target = {"target_id": target}
    try:
        # A Target too: a struct does not validate its values when it is made in Python.
        fields = msgspec.structs.asdict(target) if isinstance(target, Target) else target
        return msgspec.convert(fields, Target)
    except msgspec.ValidationError as error:
        invalid = WrongUse(**invalid_field(error))
        raise invalid.within(f"target {index}", index=index) from None


def _encode(what: str, value: object) -> bytes:
    try:
        data = encode(msgspec.to_builtins(value, str_keys=True))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WrongUse(reason=f"{what} cannot be sent: {error}") from None
    if len(data) > CHUNK_BYTES:
        raise WrongUse(reason=f"{what} has {len(data)} bytes, at most {CHUNK_BYTES} can be sent")
    return data
