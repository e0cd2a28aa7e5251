"""Sweeps: their states, what defines one, its partitions, its error budget, its progress.

A sweep calls a handler once for every index in 0..total-1. It is cut into partitions, each of
which runs as one long task and stores only how far it has come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import msgspec

from drumline.errors import Conflict, WrongUse

PARTITION_TARGET_TYPE = "sweep"
"""The target type of the tasks that run a sweep's partitions. Their type is the handler's name."""
HOOK_TARGET_TYPE = "sweep.hook"
"""And of those that run its create and prepare hooks."""


class SweepState(StrEnum):
    """Where a sweep is. Each comment says who moves it out."""

    CREATED = "created"  # an operator starts it, or its create hook refuses it
    WAITING = "waiting"  # its prepare hook ends, the handler starts it, or anyone stops it
    RUNNING = "running"  # its last partition finishes, or anyone stops it
    STOPPING = "stopping"  # its last running partition has stopped
    STOPPED = "stopped"  # an operator starts it again
    FINISHED = "finished"  # nobody
    FAILED = "failed"  # nobody


class Initiator(StrEnum):
    """Who asks for a move."""

    OPERATOR = "operator"
    HANDLER = "handler"  # the user's code: hooks, and items that start or stop their own sweep
    RUNNER = "runner"  # Drumline's: a partition ended, a hook broke, the error budget is spent


S = SweepState

TRANSITIONS: Mapping[Initiator, Mapping[SweepState, frozenset[SweepState]]] = {
    Initiator.OPERATOR: {
        S.CREATED: frozenset({S.WAITING, S.RUNNING}),
        S.STOPPED: frozenset({S.WAITING, S.RUNNING}),
        S.WAITING: frozenset({S.STOPPING}),
        S.RUNNING: frozenset({S.STOPPING}),
    },
    Initiator.HANDLER: {
        S.CREATED: frozenset({S.FAILED}),
        S.WAITING: frozenset({S.RUNNING, S.STOPPING, S.FAILED}),
        S.RUNNING: frozenset({S.STOPPING}),
    },
    Initiator.RUNNER: {
        S.WAITING: frozenset({S.RUNNING, S.STOPPED}),
        S.RUNNING: frozenset({S.STOPPING, S.STOPPED, S.FINISHED}),
        S.STOPPING: frozenset({S.STOPPED, S.FINISHED}),
    },
}
"""A stop always goes through stopping; where nothing runs, stopped follows in the same transaction.
Waiting or running goes to stopped at once only if the start failed."""

ACTIVE = frozenset({S.WAITING, S.RUNNING, S.STOPPING})
ENDED = frozenset({S.FINISHED, S.FAILED})

_VERBS = {
    S.CREATED: "create it again",
    S.WAITING: "start it",
    S.RUNNING: "start it",
    S.STOPPING: "stop it",
    S.STOPPED: "call it stopped",
    S.FINISHED: "call it finished",
    S.FAILED: "refuse it",
}


def check_transition(source: SweepState, target: SweepState, by: Initiator) -> None:
    """Refuse a move that the table does not have, and say from where it would be legal."""
    table = TRANSITIONS[by]
    if target in table.get(source, ()):
        return
    verb = _VERBS[target]
    sources = [state.value for state in S if target in table.get(state, ())]
    rule = f"may {verb} only from {' or '.join(sources)}" if sources else f"may never {verb}"
    article = "an" if by is Initiator.OPERATOR else "the"
    raise Conflict(reason=f"The sweep is {source.value}: {article} {by.value} {rule}.")


def state_after_start(source: SweepState, *, prepare: bool) -> SweepState:
    """What an operator's start makes of it: it waits where the handler has to prepare first."""
    target = S.WAITING if prepare else S.RUNNING
    check_transition(source, target, Initiator.OPERATOR)
    return target


def state_after_stop(source: SweepState, by: Initiator, *, asked: bool) -> SweepState:
    """What a stop makes of it. Asked twice is fine, also when the first has already been done.

    `asked` says whether a stop was asked since the last start: a sweep that stopped by itself has
    nothing to stop.
    """
    if source is S.STOPPING or (source is S.STOPPED and asked):
        return source
    check_transition(source, S.STOPPING, by)
    return S.STOPPING


def check_extra_change(source: SweepState, parallel: int | None) -> None:
    """The handler changes its extra data while waiting, or while only one item runs at a time."""
    if source is S.WAITING or (source is S.RUNNING and parallel == 1):
        return
    state = "running in parallel" if source is S.RUNNING else source.value
    raise Conflict(
        reason=f"The sweep is {state}: the handler may change its extra data only while it waits, "
        "or while it runs with parallel 1."
    )


LONGEST_NAME = 128
LARGEST_TOTAL = 2**63 - 1
LARGEST_RATE = 1_000_000.0
SMALLEST_RATE = 0.001
LARGEST_PARALLEL = 10_000
LARGEST_PARTITIONS = 1_024


class SweepDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator asks for. Refused on construction, naming the field that is wrong."""

    name: str
    type: str
    total: int | None = None
    items: str | None = None
    """A file or URL with one item a line, instead of a total."""
    rate: float | None = None
    """Items a second of the whole sweep; none means as fast as it goes."""
    parallel: int | None = None
    """Items at a time of the whole sweep; none leaves it to the runners."""
    errors: int | None = None
    """The error budget; none means that errors never stop it."""
    partitions: int = 1

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_text("type", self.type)
        if (self.total is None) == (self.items is None):
            raise _wrong("total", "give either a total or items, one of the two")
        if self.items is not None:
            _check_text("items", self.items)
        _check_count("total", self.total, 1, LARGEST_TOTAL)
        _check_count("partitions", self.partitions, 1, LARGEST_PARTITIONS)
        check_rate(self.rate)
        check_parallel(self.parallel, self.partitions)
        check_errors(self.errors)
        if self.total is not None and self.partitions > self.total:
            raise _wrong("partitions", f"{self.partitions} are more than the {self.total} items")


def check_name(name: object) -> None:
    _check_text("name", name)
    text = str(name)
    if len(text) > LONGEST_NAME:
        raise _wrong("name", f"{len(text)} characters are more than {LONGEST_NAME}")
    if text != text.strip() or not text.isprintable():
        raise _wrong("name", "must not have control characters or spaces at its ends")
    if re.fullmatch(r"[0-9]+", text):
        raise _wrong("name", f"{text!r} would be taken for an id: use a letter")


def check_rate(rate: object) -> None:
    if rate is None:
        return
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise _wrong("rate", f"must be a number, not {rate!r}")
    if not SMALLEST_RATE <= rate <= LARGEST_RATE:  # also refuses nan
        raise _wrong("rate", f"must be from {SMALLEST_RATE:g} to {LARGEST_RATE:,.0f}, not {rate}")


def check_parallel(parallel: int | None, partitions: int) -> None:
    _check_count("parallel", parallel, 1, LARGEST_PARALLEL)
    if parallel is not None and partitions > parallel:
        raise _wrong("parallel", f"{parallel} is less than the {partitions} partitions")


def check_errors(errors: object) -> None:
    _check_count("errors", errors, 0, LARGEST_TOTAL)


def _check_count(field: str, value: object, low: int, high: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(field, f"must be a whole number, not {value!r}")
    if not low <= value <= high:
        raise _wrong(field, f"must be from {low} to {high:,}, not {value}")


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(field, f"must be a text that is not empty, not {value!r}")


def _wrong(field: str, reason: str) -> WrongUse:
    return WrongUse(field=field, reason=f"{reason}.")


class PartitionRange(NamedTuple):
    """The indexes [first, end) of one partition."""

    first: int
    end: int


def split_into_partitions(first: int, end: int, partitions: int) -> list[PartitionRange]:
    """Cut [first, end) into contiguous parts whose sizes differ by one at most."""
    total = end - first
    if not 1 <= partitions <= total:
        raise _wrong("partitions", f"{total} items cannot be cut into {partitions} parts")
    edges = [first + total * n // partitions for n in range(partitions + 1)]
    return [PartitionRange(low, high) for low, high in pairwise(edges)]


def share_of_rate(rate: float | None, running: int) -> float | None:
    """What each of the partitions that run now may do of the sweep's rate."""
    return None if rate is None else rate / max(1, running)


def share_of_parallel(parallel: int, partitions: int, number: int) -> int:
    """How many items partition `number` may run at a time: the shares add up to the whole."""
    return parallel * (number + 1) // partitions - parallel * number // partitions


def node_partition_limit(setting: int, running: int, live_nodes: int) -> int:
    """How many sweeps one node may run: its even share, rounded up, and never more than set."""
    return min(setting, -(-running // max(1, live_nodes)))


def spent_budget_reason(errors: int, errors_at_start: int, budget: int | None) -> str | None:
    """Why the sweep must stop, if its error budget is spent.

    The count of errors is never set back. A resumed sweep gets its budget anew, so what counts is
    what came since an operator last started it (`at_start` was the count then). Zero and one both
    stop at the first error.
    """
    since = errors - errors_at_start
    if budget is None or since < max(1, budget):
        return None
    return f"the error budget of {budget:,} is spent: {since:,} items failed since the start"


MIN_SPEED = 1e-6  # items a second: a measured speed only ever comes near to zero


class PartitionProgress(NamedTuple):
    """How far one partition is."""

    first: int
    end: int
    start: int
    """Every item before this one is done."""
    errors: int
    speed: float
    """Items a second; 0 if it is not running."""


class SweepProgress(NamedTuple):
    """How far the sweep is: its partitions taken together."""

    total: int
    done: int
    errors: int
    speed: float
    eta: float | None
    """Seconds until it is finished; none if nothing moves."""


def sum_progress(partitions: Iterable[PartitionProgress]) -> SweepProgress:
    """Add the partitions up.

    All that is left at the speed of all is right as long as partitions wait for a runner; towards
    the end the slowest one decides. The later of the two is the honest answer.
    """
    total = done = errors = 0
    speed = slowest = 0.0
    for part in partitions:
        total += part.end - part.first
        done += part.start - part.first
        errors += part.errors
        left = part.end - part.start
        if left and part.speed > MIN_SPEED:
            speed += part.speed
            slowest = max(slowest, left / part.speed)
    left = total - done
    eta: float | None = 0.0
    if left:
        eta = max(left / speed, slowest) if speed else None
    return SweepProgress(total, done, errors, speed, eta)
