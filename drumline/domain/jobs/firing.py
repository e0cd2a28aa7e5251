"""Decisions on firings: whether a firing runs, is queued or is skipped, and why.

The caller reads the earlier runs of the job and writes the decision, in one transaction that
compares and sets the job's decision number. A unique key in the database, not this module, ensures
that a job has at most one run for each scheduled time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from drumline.domain.states import Cause, TaskState


class OverlapAction(StrEnum):
    """What happens to a scheduled firing while an earlier run is unfinished."""

    ALLOW = "ALLOW"
    SKIP = "SKIP"
    CANCEL_PREV = "CANCEL_PREV"
    PARALLEL = "PARALLEL"  # as ALLOW, and exempt from the concurrency limit


class FailureAction(StrEnum):
    """What happens to a scheduled firing after the last run that started has failed."""

    RUN_NEW = "RUN_NEW"
    SKIP = "SKIP"
    RETRY = "RETRY"


class ConcurrencyPolicy(StrEnum):
    """What happens to a firing while max_concurrency runs are unfinished."""

    QUEUE = "QUEUE"
    SKIP = "SKIP"
    PARALLEL = "PARALLEL"


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
    """An unfinished run that was allowed to start: pending, running, or waiting for a callback."""

    id: int
    started: bool = True
    """If not, a cancel ends the run immediately."""
    cancelling: bool = False


@dataclass(frozen=True, slots=True)
class LastRun:
    """The latest run that started; skipped and queued runs do not count."""

    state: TaskState
    run_attempt: int
    skipped_since: bool = False
    """A later firing was skipped, whatever the cause."""

    @property
    def failed(self) -> bool:
        return self.state in (TaskState.FAIL, TaskState.CANCEL)


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """The state of the job's earlier firings, from which the next is decided."""

    active: tuple[ActiveRun, ...] = ()
    queued: tuple[int, ...] = ()
    """Ids of the runs that wait for the concurrency limit, in order."""
    last: LastRun | None = None


@dataclass(frozen=True, slots=True)
class FiringDecision:
    """The state to write for a firing, and the runs to cancel in the same transaction."""

    state: TaskState
    """PENDING: it runs. SCHEDULED: it is queued until startable_runs() returns it. Or SKIPPED."""
    cause: Cause | None
    reason: str
    run_attempt: int
    """The number of the run; of a skip, the number that the run would have had."""
    cancel: tuple[int, ...] = ()


def needs_decision(policies: FiringPolicies, kind: FiringKind = FiringKind.SCHEDULED) -> bool:
    """False if decide_firing() would run every firing of this kind as number 1, in any case."""
    limited = policies.max_concurrency > 0 and (
        policies.concurrency_policy is not ConcurrencyPolicy.PARALLEL
    )
    if kind is FiringKind.SCHEDULED:
        if policies.overlap_action in (OverlapAction.SKIP, OverlapAction.CANCEL_PREV):
            return True
        # Only an overlap can reach a limit, and PARALLEL exempts overlaps from it.
        limited = limited and policies.overlap_action is not OverlapAction.PARALLEL
    return limited or policies.failure_action is not FailureAction.RUN_NEW


def decide_firing(
    policies: FiringPolicies, earlier: EarlierRuns, kind: FiringKind = FiringKind.SCHEDULED
) -> FiringDecision:
    """Apply the policies: overlap, then failure, then concurrency; to a manual firing only that."""
    number = _run_attempt(policies.failure_action, earlier.last)
    is_scheduled = kind is FiringKind.SCHEDULED
    active, queued = len(earlier.active), len(earlier.queued)
    limit = policies.max_concurrency
    cancel: tuple[int, ...] = ()
    cancels_started = False

    def skip(cause: Cause, reason: str) -> FiringDecision:
        return FiringDecision(TaskState.SKIPPED, cause, reason, number, cancel)

    def queue(cause: Cause, reason: str) -> FiringDecision:
        return FiringDecision(TaskState.SCHEDULED, cause, reason, number, cancel)

    if is_scheduled and active + queued:
        unfinished = f"{_runs(active + queued, 'earlier run')} still running or waiting"
        match policies.overlap_action:
            case OverlapAction.SKIP:
                return skip(Cause.OVERLAP, f"skipped: {unfinished} and overlap_action is SKIP")
            case OverlapAction.CANCEL_PREV:
                # Also the queued ones: an older run must not start after the one that replaces it.
                cancel = tuple(run.id for run in earlier.active if not run.cancelling)
                cancel += earlier.queued
                cancels_started = any(run.started for run in earlier.active)
                active = queued = 0
            case OverlapAction.PARALLEL:
                limit = 0
            case OverlapAction.ALLOW:
                pass

    last = earlier.last
    if (
        is_scheduled
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
                # Behind the queue even if the limit is not reached now: runs start in order.
                if active >= limit or queued:
                    reason = f"queued as number {queued + 1}: {under_way}"
                    return queue(Cause.CONCURRENCY, reason)
            case ConcurrencyPolicy.PARALLEL:
                pass

    if cancels_started:
        return queue(Cause.OVERLAP, "queued: it starts when the cancelled runs have ended")
    return FiringDecision(TaskState.PENDING, None, f"runs as number {number}", number, cancel)


def startable_runs(
    policies: FiringPolicies, active: Sequence[ActiveRun], queued: Sequence[int]
) -> tuple[int, ...]:
    """The queued runs that may start now, in order."""
    replacing = policies.overlap_action is OverlapAction.CANCEL_PREV
    if replacing and any(run.cancelling for run in active):
        return ()  # the runs that are being replaced have not ended yet
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
