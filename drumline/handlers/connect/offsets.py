"""Connector offsets: the changes from one set to another, and the position within an offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from drumline.errors import WrongUse
from drumline.handlers.connect.client import Offset

MARK_PARTITION: Mapping[str, str] = {"drumline": "gtid-reset"}
"""An extra partition beside the connector's own: it names the task that last moved the offsets.

Once a connector runs again, its offsets advance, and nothing else could distinguish a completed
reset from one that was not made. Connect stores source offsets as opaque maps, and a connector
reads only the partitions that it knows."""

_POSITION = ("gtids", "file", "pos")
_KEPT: tuple[str, ...] = ("file", "pos", "server_id")


def identity(partition: Mapping[str, Any]) -> bytes:
    """Partitions with the same content are equal, whatever the order of their keys."""
    return msgspec.json.encode(partition, order="deterministic")


def by_partition(offsets: Iterable[Offset]) -> dict[bytes, Offset]:
    return {identity(each.partition): each for each in offsets if each.offset is not None}


def offset_changes(now: Iterable[Offset], wanted: Iterable[Offset]) -> list[Offset]:
    """The changes from `now` to `wanted`: offsets that differ, and None for those to delete."""
    has, wants = by_partition(now), by_partition(wanted)
    changes = [each for key, each in wants.items() if has.get(key) != each]
    return changes + [Offset(each.partition, None) for key, each in has.items() if key not in wants]


def mark(task_id: int | None) -> Offset:
    """The mark of a task; None removes the mark."""
    return Offset(dict(MARK_PARTITION), None if task_id is None else {"task": task_id})


def marked_by(offsets: Iterable[Offset]) -> int | None:
    """The task that last moved these offsets and has not been rolled back."""
    found = by_partition(offsets).get(identity(MARK_PARTITION))
    return None if found is None or found.offset is None else found.offset.get("task")


def without_mark(offsets: Iterable[Offset]) -> list[Offset]:
    ours = identity(MARK_PARTITION)
    return [each for each in offsets if identity(each.partition) != ours]


def moved_offset(
    offsets: Iterable[Offset], topic_prefix: str | None, position: Mapping[str, Any]
) -> Offset:
    """The connector's offset, moved to another position in the source's log."""
    candidates = [
        each for each in without_mark(offsets)
        if each.offset is not None and any(name in each.offset for name in _POSITION)
    ]  # fmt: skip
    if len(candidates) > 1:
        raise WrongUse(reason=f"the connector has {len(candidates)} positions, expected one")
    if candidates:
        # Rows and events to skip, and the snapshot, belong to the old position.
        old = candidates[0].offset or {}
        kept = {name: old[name] for name in _KEPT if name in old}
        return Offset(candidates[0].partition, {**kept, **position})
    if not topic_prefix:
        raise WrongUse(
            reason="the connector has neither offsets nor a topic.prefix to derive their name from"
        )
    return Offset({"server": topic_prefix}, dict(position))
