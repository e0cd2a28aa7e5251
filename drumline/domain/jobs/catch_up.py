"""Catch-up: which firings still run that were missed while no process was there to fire them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from drumline.domain.jobs.schedule import FiringCount


class CatchUpMode(StrEnum):
    """What happens to misfires: firings that are later than their grace."""

    NONE = "NONE"
    COMPACT = "COMPACT"
    FULL = "FULL"


class FiringSource(Protocol):
    """A source of firings: a Schedule, or rows of firings (ListedFirings)."""

    def between(self, start_us: int, end_us: int) -> Iterator[int]: ...

    def count_firings(self, start_us: int, end_us: int, keep: int) -> FiringCount: ...


@dataclass(frozen=True, slots=True)
class ListedFirings:
    """The times of overdue firings that were read from rows, ascending."""

    times: tuple[int, ...]

    def between(self, start_us: int, end_us: int) -> Iterator[int]:
        return (t for t in self.times if start_us < t <= end_us)

    def count_firings(self, start_us: int, end_us: int, keep: int) -> FiringCount:
        times = tuple(self.between(start_us, end_us))
        if not times:
            return FiringCount()
        return FiringCount(len(times), times[0], times[max(len(times) - keep, 0) :])


@dataclass(frozen=True, slots=True)
class Misfire:
    """Firings that were missed and do not run, recorded in one row."""

    count: int
    first: int
    last: int

    @property
    def reason(self) -> str:
        firings = "1 firing was" if self.count == 1 else f"{self.count} firings were"
        return f"{firings} missed, from {_iso(self.first)} to {_iso(self.last)}"


@dataclass(frozen=True, slots=True)
class CatchUpPlan:
    to_fire: tuple[int, ...]
    """Scheduled times to fire now, ascending; decide_firing() decides each of them."""
    misfire: Misfire | None


def plan_catch_up(
    firings: FiringSource,
    *,
    fired_until: int,
    now: int,
    grace_us: int,
    mode: CatchUpMode,
    bound: int,
    changed_at: int = 0,
) -> CatchUpPlan:
    """Decide which of the firings in (fired_until, now] still run.

    Those no later than the grace run. Of the others, NONE runs none, COMPACT only the newest, and
    FULL the newest `bound`. Firings from before the last change of the job are ignored: another
    schedule was in force then.
    """
    start = max(fired_until, changed_at)
    too_late = max(now - grace_us - 1, start)
    keep = {CatchUpMode.NONE: 0, CatchUpMode.COMPACT: 1, CatchUpMode.FULL: bound}[mode]
    missed = firings.count_firings(start, too_late, keep + 1)
    kept = missed.newest[max(len(missed.newest) - keep, 0) :]
    dropped = missed.count - len(kept)
    misfire = None
    if dropped:
        # `newest` holds one time more than is kept: the newest of those that do not run.
        misfire = Misfire(dropped, missed.first, missed.newest[0])
    return CatchUpPlan((*kept, *firings.between(too_late, now)), misfire)


def _iso(t_us: int) -> str:
    # Not fromtimestamp(t_us / 1e6): a float loses the last microsecond.
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=t_us)).isoformat()
