"""The data of a partition that keeper and runner exchange, and the results of its tasks."""

from __future__ import annotations

import msgspec

MAX_EXTRA_BYTES = 64 * 1024
"""Of JSON, in the extra data of a sweep."""
MAX_MESSAGE_LENGTH = 1_000
"""Characters of one line of the data log."""
MAX_LOG_LINES = 1_000
"""Lines that one checkpoint carries; further lines are only counted."""


class PartitionDirectives(msgspec.Struct, frozen=True, array_like=True):
    """What may change while a partition runs; the answer to every checkpoint."""

    stop: bool
    rate: float | None
    """Items per second: the share of this partition. None: no limit."""
    parallel: int | None
    """Concurrent items: the share of this partition. None: the default of the runner."""
    serial: bool
    """The whole sweep runs one item at a time."""
    budget: int | None
    errors_at_start: int
    """Errors of the whole sweep at its last start."""
    other_errors: int
    """Errors of all other partitions."""


class ItemSource(msgspec.Struct, frozen=True, array_like=True):
    """The source of a sweep's items: either `items` or `listed`; the other is None."""

    items: str | None
    """A file or a URL."""
    listed: tuple[str, ...] | None
    identity: str | None = None
    """Identifies the content that was counted; None before the count."""
    total: int | None = None
    """The number of lines of that content."""


class PartitionInfo(msgspec.Struct, frozen=True, array_like=True):
    """What a runner needs to start or continue a partition."""

    sweep_id: int
    name: str
    number: int
    end: int
    start: int
    errors: int
    stuck: tuple[int, ...]
    """Items that could not be stopped at their timeout; they have failed and do not run again."""
    extra: str | None
    source: ItemSource | None
    directives: PartitionDirectives


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of the data log."""

    item: int
    message: str


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a partition. It includes that of an unanswered checkpoint, which may be lost.
    The stored start never moves back; failed items before it are stored already.
    """

    start: int
    """Every item before this one is done."""
    errors: int
    """How many of these failed. Failures beyond the start are not counted: after a crash their
    items run again, and would be counted twice."""
    failed: tuple[int, ...] = ()
    """Items that failed since the last stored checkpoint, ascending; at most MAX_FAILED_NAMED."""
    log: tuple[LogLine, ...] = ()
    extra: str | None = None
    """The extra data as JSON, if it was changed."""
    speed: float = 0.0
    """Items per second."""
    stuck: tuple[int, ...] = ()
    """Items that cannot be stopped: the keeper kills the runner, and they count as failed."""


class PartitionResult(msgspec.Struct, frozen=True):
    """The result of a task that ran a partition."""

    start: int
    errors: int
    done: bool
    reason: str | None = None
    """Why it stopped; None if it is done or was told to stop."""
    stopped_by_handler: bool = False


class HookResult(msgspec.Struct, frozen=True):
    """The result of a task that ran a hook."""

    refused: str | None = None
    """The reason for which the handler refused the sweep."""
    retry_after: float | None = None
    """Run the hook again after this many seconds."""
    waits: bool = False
    """The sweep stays waiting until the handler starts it."""
    total: int | None = None
    identity: str | None = None
    extra: str | None = None
    """The extra data as JSON, if the hook changed it."""


class HookParam(msgspec.Struct, frozen=True):
    """The param of a task that runs a hook."""

    hook: str
    sweep_id: int
    name: str
    source: ItemSource | None = None
    extra: str | None = None
    first: int = 0
    end: int | None = None
