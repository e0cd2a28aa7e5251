"""The progress of a sweep: its error budget, its speed, and the time until it is finished."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


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
