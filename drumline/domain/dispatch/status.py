"""What the dispatcher reports about its queue and its workers."""

from __future__ import annotations

import msgspec


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The dispatcher's queue and the pool of workers behind it."""

    length: int
    capacity: int
    by_type: dict[str, int] = {}
    """Queued tasks by handler key."""
    assigned: int = 0
    """Tasks that workers hold."""
    pool_size: int
    """Registered workers."""
    free_workers: int
    """Registered workers that hold nothing."""
    paused: tuple[str, ...] = ()
    finished: int = 0
    """Runs that ended since the dispatcher started."""
    partitions: int = 0
    """Partitions of sweeps that workers hold."""
    partition_limit: int = 0
    """Partitions of sweeps that the workers of this node may hold at a time."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One registered worker."""

    name: str
    pid: int = 0
    keeper: int = 0
    """The id of its keeper's row."""
    state: str = "free"
    """free, busy or draining."""
    tasks: tuple[int, ...] = ()
    """Some of the tasks that it holds."""
    holds: int = 0
    """How many tasks it holds."""
