"""The progress of a sweep: its error budget, its speed, and its remaining time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


def spent_budget_reason(errors: int, errors_at_start: int, budget: int | None) -> str | None:
    """The reason for which the sweep must stop, if its error budget is spent.

    The error count is never reset. A restarted sweep has its whole budget again, so only errors
    since the last start count. Budgets of zero and one both stop at the first error.
    """
    since = errors - errors_at_start
    if budget is None or since < max(1, budget):
        return None
    return f"the error budget of {budget:,} is spent: {since:,} items failed since the start"


MIN_SPEED = 1e-6
"""Items per second; a lower speed counts as none, since a measured speed only approaches zero."""


class PartitionProgress(NamedTuple):
    """The progress of one partition."""

    first: int
    end: int
    start: int
    """Every item before this one is done."""
    errors: int
    speed: float
    """Items per second; 0 if the partition is not running."""


class SweepProgress(NamedTuple):
    """The progress of the sweep: the sum of its partitions."""

    total: int
    done: int
    errors: int
    speed: float
    eta: float | None
    """Seconds until the sweep is finished; None if no partition progresses."""


def sum_progress(partitions: Iterable[PartitionProgress]) -> SweepProgress:
    """Add up the partitions.

    The remaining time is the larger of two estimates: all remaining items at the speed of all
    running partitions, which holds while partitions wait for a runner, and that of the slowest
    partition, which decides at the end.
    """
    total = done = errors = 0
    speed = slowest = 0.0
    for partition in partitions:
        total += partition.end - partition.first
        done += partition.start - partition.first
        errors += partition.errors
        left = partition.end - partition.start
        if left and partition.speed > MIN_SPEED:
            speed += partition.speed
            slowest = max(slowest, left / partition.speed)
    left = total - done
    eta: float | None = 0.0
    if left:
        eta = max(left / speed, slowest) if speed else None
    return SweepProgress(total, done, errors, speed, eta)
