"""What becomes of a firing: does it run, wait, or leave a skipped row, and why.

Pure: the caller reads what it knows of the job's earlier runs, asks, and writes the answer in one
transaction that compares and sets the job's decision number. That one job and scheduled time has
one run is the database's unique key, not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from drumline.domain.jobs.schedule import FiringCount
from drumline.domain.states import Cause, TaskState


class OverlapAction(StrEnum):
    """What a scheduled firing does when an earlier run is still running or waiting."""

    ALLOW = "ALLOW"
    SKIP = "SKIP"
    CANCEL_PREV = "CANCEL_PREV"
    PARALLEL = "PARALLEL"  # as ALLOW, and past the concurrency limit


class FailureAction(StrEnum):
    """What a scheduled firing does when the last run that started did not succeed."""

    RUN_NEW = "RUN_NEW"
    SKIP = "SKIP"
    RETRY = "RETRY"


class ConcurrencyPolicy(StrEnum):
    """What a firing does when max_concurrency runs are under way."""

    QUEUE = "QUEUE"
    SKIP = "SKIP"
    PARALLEL = "PARALLEL"


class CatchUpMode(StrEnum):
    """What becomes of firings that were missed past their grace."""

    NONE = "NONE"
    COMPACT = "COMPACT"
    FULL = "FULL"


class FiringKind(StrEnum):
    SCHEDULED = "scheduled"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class FiringPolicies:
    overlap_action: OverlapAction = OverlapAction.ALLOW
    failure_action: FailureAction = FailureAction.RUN_NEW
    concurrency_policy: ConcurrencyPolicy = ConcurrencyPolicy.QUEUE
    max_concurrency: int = 0  # no limit


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run that was let through and has not ended: pending, running, retrying or called back."""

    id: int
    started: bool = True
    """If not, cancelling it ends it at once."""
    cancelling: bool = False


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last effective run: the latest that started. Skips and queued runs are not."""

    state: TaskState
    run_attempt: int
    skipped_since: bool = False
    """A firing was skipped after it, for whatever reason."""

    @property
    def failed(self) -> bool:
        return self.state in (TaskState.FAIL, TaskState.CANCEL)


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """What the job's earlier firings have come to."""

    active: tuple[ActiveRun, ...] = ()
    queued: tuple[int, ...] = ()
    """Runs that wait to be let through, in their order."""
    last: LastRun | None = None


@dataclass(frozen=True, slots=True)
class FiringDecision:
    """The row to write for a firing, and what to cancel in the same transaction."""

    state: TaskState
    """PENDING: it runs. SCHEDULED: it is queued until startable() names it. SKIPPED: it is over."""
    cause: Cause | None
    reason: str
    run_attempt: int
    """The run's number; of a skip, the number that the run would have had."""
    cancel: tuple[int, ...] = ()


def needs_decision(policies: FiringPolicies, kind: FiringKind = FiringKind.SCHEDULED) -> bool:
    """False if decide() lets every firing of this kind run as number 1, whatever came before."""
    limited = policies.max_concurrency > 0 and (
        policies.concurrency_policy is not ConcurrencyPolicy.PARALLEL
    )
    if kind is FiringKind.SCHEDULED:
        if policies.overlap_action in (OverlapAction.SKIP, OverlapAction.CANCEL_PREV):
            return True
        # A limit is only ever reached by an overlap, and PARALLEL lets every overlap pass it.
        limited = limited and policies.overlap_action is not OverlapAction.PARALLEL
    return limited or policies.failure_action is not FailureAction.RUN_NEW


def decide_firing(
    policies: FiringPolicies, earlier: EarlierRuns, kind: FiringKind = FiringKind.SCHEDULED
) -> FiringDecision:
    """Overlap, then the last failure, then concurrency; a manual firing knows only the last."""
    number = _run_attempt(policies.failure_action, earlier.last)
    scheduled = kind is FiringKind.SCHEDULED
    active, queued = len(earlier.active), len(earlier.queued)
    limit = policies.max_concurrency
    cancel: tuple[int, ...] = ()
    ending = False

    def skip(cause: Cause, reason: str) -> FiringDecision:
        return FiringDecision(TaskState.SKIPPED, cause, reason, number, cancel)

    def queue(cause: Cause, reason: str) -> FiringDecision:
        return FiringDecision(TaskState.SCHEDULED, cause, reason, number, cancel)

    if scheduled and active + queued:
        unfinished = f"{_runs(active + queued, 'earlier run')} still running or waiting"
        match policies.overlap_action:
            case OverlapAction.SKIP:
                return skip(Cause.OVERLAP, f"skipped: {unfinished} and overlap_action is SKIP")
            case OverlapAction.CANCEL_PREV:
                # Queued ones too: an older run must not start after the one that replaces it.
                cancel = tuple(run.id for run in earlier.active if not run.cancelling)
                cancel += earlier.queued
                ending = any(run.started for run in earlier.active)
                active = queued = 0
            case OverlapAction.PARALLEL:
                limit = 0
            case OverlapAction.ALLOW:
                pass

    last = earlier.last
    if (
        scheduled
        and policies.failure_action is FailureAction.SKIP
        and last is not None
        and last.failed
        and not last.skipped_since
    ):
        outcome = f"run number {last.run_attempt} ended in {last.state.value}"
        return skip(Cause.FAILURE, f"skipped once: {outcome} and failure_action is SKIP")

    if limit > 0:
        under_way = f"{_runs(active, 'run')} under way, max_concurrency is {limit}"
        match policies.concurrency_policy:
            case ConcurrencyPolicy.SKIP:
                if active >= limit:
                    reason = f"skipped: {under_way} and concurrency_policy is SKIP"
                    return skip(Cause.CONCURRENCY, reason)
            case ConcurrencyPolicy.QUEUE:
                # Behind the queue even if a place is free just now: runs start in their order.
                if active >= limit or queued:
                    reason = f"queued as number {queued + 1}: {under_way}"
                    return queue(Cause.CONCURRENCY, reason)
            case ConcurrencyPolicy.PARALLEL:
                pass

    if ending:
        return queue(Cause.OVERLAP, "queued: it starts when the runs that it cancels have ended")
    return FiringDecision(TaskState.PENDING, None, f"runs as number {number}", number, cancel)


def startable_runs(
    policies: FiringPolicies, active: Sequence[ActiveRun], queued: Sequence[int]
) -> tuple[int, ...]:
    """The queued runs that may start now, in their order."""
    replacing = policies.overlap_action is OverlapAction.CANCEL_PREV
    if replacing and any(run.cancelling for run in active):
        return ()  # what is being replaced has not really ended yet
    limit = policies.max_concurrency
    if limit == 0 or policies.concurrency_policy is ConcurrencyPolicy.PARALLEL:
        return tuple(queued)
    return tuple(queued[: max(limit - len(active), 0)])


def _run_attempt(action: FailureAction, last: LastRun | None) -> int:
    if last is None or not last.failed or action is FailureAction.RUN_NEW:
        return 1
    skipped_one = action is FailureAction.SKIP and last.skipped_since
    return last.run_attempt + (2 if skipped_one else 1)


def _runs(count: int, noun: str) -> str:
    return f"{count} {noun} is" if count == 1 else f"{count} {noun}s are"


class FiringSource(Protocol):
    """Where firings come from: a Schedule, or rows that were found (Listed)."""

    def between(self, start_us: int, end_us: int) -> Iterator[int]: ...

    def count_firings(self, start_us: int, end_us: int, keep: int) -> FiringCount: ...


@dataclass(frozen=True, slots=True)
class ListedFirings:
    """Firings whose rows were found past their time, ascending."""

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
    """The firings of one gap that will never run: one row says so."""

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
    """Scheduled times to fire now, ascending; each still has to pass decide()."""
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
    """What to do about the firings in (fired_until, now].

    Those no older than the grace run, late as they are. Of the older ones NONE runs none, COMPACT
    the newest, in the name of all, and FULL the newest `bound`. None is from before the job's last
    change: another schedule was in force then.
    """
    start = max(fired_until, changed_at)
    too_late = max(now - grace_us - 1, start)
    keep = {CatchUpMode.NONE: 0, CatchUpMode.COMPACT: 1, CatchUpMode.FULL: bound}[mode]
    missed = firings.count_firings(start, too_late, keep + 1)
    kept = missed.newest[max(len(missed.newest) - keep, 0) :]
    gone = missed.count - len(kept)
    misfire = None
    if gone:
        # newest has one more than is kept: the newest of those that are gone.
        misfire = Misfire(gone, missed.first, missed.newest[0])
    return CatchUpPlan((*kept, *firings.between(too_late, now)), misfire)


def _iso(t_us: int) -> str:
    # Not fromtimestamp(t / 1e6): a float has lost the last microsecond.
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=t_us)).isoformat()
