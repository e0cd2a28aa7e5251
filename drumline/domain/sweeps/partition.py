"""One partition of a sweep, as its runner and its keeper speak of it."""

from __future__ import annotations

import msgspec

MAX_EXTRA_BYTES = 64 * 1024
"""Bytes of JSON in a sweep's extra data."""
MAX_MESSAGE_LENGTH = 1_000
"""Characters of a line of the data log."""
MAX_LOG_LINES = 1_000
"""Lines between two checkpoints; more are only counted."""


class PartitionDirectives(msgspec.Struct, frozen=True, array_like=True):
    """What may change while a partition runs. Every checkpoint is answered with it."""

    stop: bool
    rate: float | None
    """This partition's share, as is `parallel`."""
    parallel: int | None
    serial: bool
    """One item of the whole sweep at a time."""
    budget: int | None
    errors_at_start: int
    """Errors of the whole sweep when an operator last started it."""
    other_errors: int
    """Errors of the other partitions."""


class ItemSource(msgspec.Struct, frozen=True, array_like=True):
    """Where a sweep's items come from. Exactly one of the first two is there."""

    items: str | None
    """A file or a URL."""
    listed: tuple[str, ...] | None
    identity: str | None = None
    """Of the content that was counted, and how many lines it had; none before that."""
    total: int | None = None


class PartitionInfo(msgspec.Struct, frozen=True, array_like=True):
    """All that a runner needs to go on with a partition."""

    sweep_id: int
    name: str
    number: int
    end: int
    start: int
    errors: int
    stuck: tuple[int, ...]
    """Items that could not be stopped at their timeout: they count as failed, and do not run."""
    extra: str | None
    source: ItemSource | None
    directives: PartitionDirectives


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of the data log."""

    item: int
    message: str


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """How far a partition is. It repeats what an unanswered checkpoint said, so that one may be
    lost. Storing it never moves the stored start back; failed items below that are stored already.
    """

    start: int
    """Every item before this one is done."""
    errors: int
    """How many of them failed. Failures beyond the start are not counted yet: after a crash those
    items run again, and would be counted twice."""
    failed: tuple[int, ...] = ()
    """Which failed since the last stored checkpoint, ascending; only the first of very many."""
    log: tuple[LogLine, ...] = ()
    extra: str | None = None
    """The sweep's extra data as JSON, if it was changed."""
    speed: float = 0.0
    """Items a second."""
    stuck: tuple[int, ...] = ()
    """Items that cannot be stopped: the keeper kills the runner, and they count as failed."""


class PartitionResult(msgspec.Struct, frozen=True):
    """The result of a partition's task: how far it came, and why it stopped there."""

    start: int
    errors: int
    done: bool
    reason: str | None = None
    """None: it is done, or was told to stop."""
    stopped_by_handler: bool = False


class HookResult(msgspec.Struct, frozen=True):
    """The result of a hook's task."""

    refused: str | None = None
    retry_after: float | None = None
    """Ask again after so many seconds."""
    waits: bool = False
    """It starts when someone says so."""
    total: int | None = None
    identity: str | None = None
    extra: str | None = None
    """The extra data as the hook left it, as JSON; none if it did not change it."""


class HookParam(msgspec.Struct, frozen=True):
    """The param of a hook's task."""

    hook: str
    sweep_id: int
    name: str
    source: ItemSource | None = None
    extra: str | None = None
    first: int = 0
    end: int | None = None
