"""What the SDK sends: plain data, cut into pieces that fit into one message and one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from drumline.client.control import encode
from drumline.command_layer.fields import invalid_field
from drumline.command_layer.targets import PIECE, PIECE_BYTES, Target
from drumline.errors import WrongUse

MESSAGE_LIMIT = 24 * 1024 * 1024
"""The gateway hangs up on whoever sends more than 32 MiB."""

Moment = datetime | str | float
"""A time: with a zone, as ISO 8601 with a zone, or in epoch seconds."""

Part = dict[str, Any]
"""Some of what is to be sent, as arguments of a command."""


def written(at: Moment | None) -> str | None:
    """A time as it travels."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise WrongUse(reason=f"{at!r} has no time zone")
        return at.isoformat()
    return at if at is None or isinstance(at, str) else repr(at)


def sendable(command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as plain data, checked before anything is sent."""
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        plain: dict[str, Any] = {
            name: value if _is_packed(value) else msgspec.to_builtins(value, str_keys=True)
            for name, value in given.items()
        }
        size = len(encode(plain))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WrongUse(reason=f"{command}: an argument cannot be sent: {error}") from None
    if size > MESSAGE_LIMIT:
        raise WrongUse(
            reason=f"{command}: the message has {size} bytes, at most {MESSAGE_LIMIT} can be sent"
        )
    return plain


def _is_packed(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], msgspec.Raw)


def counted(count: int) -> Iterator[Part]:
    """So many equal tasks."""
    left = count
    while left > 0:
        yield {"count": min(left, PIECE)}
        left -= PIECE


def targeted(targets: Iterable[Mapping[str, Any] | str | Target]) -> Iterator[Part]:
    """One task for each target."""
    if isinstance(targets, str | Mapping):
        raise WrongUse(reason=f"targets must be many: a list or a generator, not {targets!r:.60}")
    packed = (_packed(f"target {i}", _target(i, one)) for i, one in enumerate(targets))
    return ({"targets": piece} for piece in _pieces(packed))


def _target(number: int, target: object) -> Target:
    if isinstance(target, str):
        target = {"target_id": target}
    try:
        # A Target too: a struct does not look at its values when it is made in Python.
        fields = msgspec.structs.asdict(target) if isinstance(target, Target) else target
        return msgspec.convert(fields, Target)
    except msgspec.ValidationError as error:
        raise WrongUse(**invalid_field(error)).within(f"target {number}", index=number) from None


def one_shots(params: Iterable[Any], instances: Iterable[str | None] | None) -> Iterator[Part]:
    """One task for each param."""
    names = None if instances is None else iter(instances)
    for piece in _pieces(_packed(f"param {i}", param) for i, param in enumerate(params)):
        if names is None:
            yield {"params": piece}
            continue
        some = list(islice(names, len(piece)))
        if len(some) < len(piece):
            raise WrongUse(reason="there are fewer instances than params")
        yield {"params": piece, "instance_ids": some}
    if names is not None and list(islice(names, 1)):
        raise WrongUse(reason="there are more instances than params")


def _packed(what: str, value: object) -> bytes:
    try:
        packed = encode(msgspec.to_builtins(value, str_keys=True))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WrongUse(reason=f"{what} cannot be sent: {error}") from None
    if len(packed) > PIECE_BYTES:
        raise WrongUse(reason=f"{what} has {len(packed)} bytes")
    return packed


def _pieces(packed: Iterable[bytes]) -> Iterator[list[msgspec.Raw]]:
    """Cut so that each piece fits into one message and one transaction."""
    piece: list[msgspec.Raw] = []
    size = 0
    for one in packed:
        piece.append(msgspec.Raw(one))
        size += len(one)
        if len(piece) == PIECE or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
