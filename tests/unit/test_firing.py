"""Decisions on firings: by overlap, by the last failure and by the concurrency limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from drumline.domain.jobs.firing import (
    ActiveRun,
    ConcurrencyPolicy,
    EarlierRuns,
    FailureAction,
    FiringDecision,
    FiringKind,
    FiringPolicies,
    LastRun,
    OverlapAction,
    decide_firing,
    needs_decision,
)
from drumline.domain.states import Cause, TaskState
from tests.unit.firing_words import CONCURRENCY, FAILURE, MANUAL, OVERLAP, PENDING, QUEUED, SKIPPED

RUNNING = EarlierRuns(active=(ActiveRun(4),))
FAILED = LastRun(TaskState.FAIL, 3)


def outcome(decision: FiringDecision) -> tuple[TaskState, Cause | None, int, tuple[int, ...]]:
    return decision.state, decision.cause, decision.run_attempt, decision.cancel


def test_the_first_firing_runs() -> None:
    for overlap, failure, concurrency in product(OVERLAP, FAILURE, CONCURRENCY):
        for kind in FiringKind:
            decision = decide_firing(
                FiringPolicies(overlap, failure, concurrency, 1), EarlierRuns(), kind
            )
            assert outcome(decision) == (PENDING, None, 1, ())


# --- overlap --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "earlier",
    [
        RUNNING,
        EarlierRuns(active=(ActiveRun(4, started=False),)),
        EarlierRuns(active=(ActiveRun(4, cancelling=True),)),
        EarlierRuns(queued=(5,)),
    ],
)
def test_overlap_skip_skips_while_a_run_is_unfinished(earlier: EarlierRuns) -> None:
    decision = decide_firing(FiringPolicies(OVERLAP.SKIP), earlier)
    assert outcome(decision) == (SKIPPED, Cause.OVERLAP, 1, ())
    assert decision.reason == (
        "skipped: 1 earlier run is still running or waiting and overlap_action is SKIP"
    )


def test_overlap_skip_precedes_the_queue() -> None:
    policies = FiringPolicies(OVERLAP.SKIP, FAILURE.RUN_NEW, CONCURRENCY.QUEUE, 1)
    assert decide_firing(policies, RUNNING).cause is Cause.OVERLAP


def test_cancel_prev_cancels_unfinished_runs_and_waits_for_started_ones() -> None:
    earlier = EarlierRuns((ActiveRun(4), ActiveRun(5, started=False)), queued=(6, 7))
    decision = decide_firing(FiringPolicies(OVERLAP.CANCEL_PREV), earlier)
    assert outcome(decision) == (QUEUED, Cause.OVERLAP, 1, (4, 5, 6, 7))
    assert decision.reason == "queued: it starts when the cancelled runs have ended"


def test_cancel_prev_runs_immediately_if_no_run_had_started() -> None:
    earlier = EarlierRuns((ActiveRun(5, started=False),), queued=(6,))
    assert outcome(decide_firing(FiringPolicies(OVERLAP.CANCEL_PREV), earlier)) == (
        PENDING,
        None,
        1,
        (5, 6),
    )


def test_cancel_prev_waits_for_runs_that_are_being_cancelled() -> None:
    earlier = EarlierRuns((ActiveRun(4, cancelling=True),))
    decision = decide_firing(FiringPolicies(OVERLAP.CANCEL_PREV), earlier)
    assert outcome(decision) == (QUEUED, Cause.OVERLAP, 1, ())


@pytest.mark.parametrize("concurrency", CONCURRENCY)
def test_runs_cancelled_by_cancel_prev_do_not_count_for_the_limit(
    concurrency: ConcurrencyPolicy,
) -> None:
    policies = FiringPolicies(OVERLAP.CANCEL_PREV, FAILURE.RUN_NEW, concurrency, 1)
    assert decide_firing(policies, replace(RUNNING, queued=(5,))).cause is Cause.OVERLAP


def test_cancel_prev_precedes_the_failure_action() -> None:
    policies = FiringPolicies(OVERLAP.CANCEL_PREV, FAILURE.SKIP)
    decision = decide_firing(policies, replace(RUNNING, last=FAILED))
    assert outcome(decision) == (SKIPPED, Cause.FAILURE, 4, (4,))


@pytest.mark.parametrize("concurrency", CONCURRENCY)
def test_overlap_parallel_ignores_the_limit(concurrency: ConcurrencyPolicy) -> None:
    policies = FiringPolicies(OVERLAP.PARALLEL, FAILURE.RUN_NEW, concurrency, 1)
    assert outcome(decide_firing(policies, replace(RUNNING, queued=(5,)))) == (PENDING, None, 1, ())


def test_overlap_allow_is_subject_to_the_limit() -> None:
    assert outcome(decide_firing(FiringPolicies(OVERLAP.ALLOW), RUNNING)) == (PENDING, None, 1, ())
    limited = FiringPolicies(OVERLAP.ALLOW, FAILURE.RUN_NEW, CONCURRENCY.SKIP, 1)
    assert decide_firing(limited, RUNNING).cause is Cause.CONCURRENCY


# --- the last failure -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", [TaskState.FAIL, TaskState.CANCEL])
@pytest.mark.parametrize(
    ("action", "skipped_since", "expected"),
    [
        (FAILURE.RUN_NEW, False, (PENDING, None, 1, ())),
        (FAILURE.RUN_NEW, True, (PENDING, None, 1, ())),
        (FAILURE.RETRY, False, (PENDING, None, 4, ())),
        (FAILURE.RETRY, True, (PENDING, None, 4, ())),
        (FAILURE.SKIP, False, (SKIPPED, Cause.FAILURE, 4, ())),
        (FAILURE.SKIP, True, (PENDING, None, 5, ())),
    ],
)
def test_after_a_failure(
    state: TaskState, action: FailureAction, skipped_since: bool, expected: object
) -> None:
    last = LastRun(state, 3, skipped_since)
    assert (
        outcome(decide_firing(FiringPolicies(failure_action=action), EarlierRuns(last=last)))
        == expected
    )


@pytest.mark.parametrize("action", FAILURE)
@pytest.mark.parametrize(
    "state",
    [
        TaskState.SUCCESS,
        TaskState.RUNNING,
        TaskState.WAITING_CALLBACK,
        TaskState.PENDING,  # given back, or between two attempts: not failed yet
        TaskState.RETRY_PENDING,
    ],
)
def test_the_run_number_is_1_unless_the_last_run_failed(
    action: FailureAction, state: TaskState
) -> None:
    earlier = EarlierRuns(last=LastRun(state, 3))
    assert outcome(decide_firing(FiringPolicies(failure_action=action), earlier)) == (
        PENDING,
        None,
        1,
        (),
    )


def test_a_failure_skip_says_which_run_failed() -> None:
    decision = decide_firing(FiringPolicies(failure_action=FAILURE.SKIP), EarlierRuns(last=FAILED))
    assert decision.reason == (
        "skipped once: run number 3 ended in fail and failure_action is SKIP"
    )


def test_a_skip_of_any_cause_after_a_failure_is_the_one_skip() -> None:
    policies = FiringPolicies(OVERLAP.SKIP, FAILURE.SKIP)
    first = decide_firing(policies, replace(RUNNING, last=FAILED))
    assert outcome(first) == (SKIPPED, Cause.OVERLAP, 4, ())
    then = decide_firing(policies, EarlierRuns(last=replace(FAILED, skipped_since=True)))
    assert outcome(then) == (PENDING, None, 5, ())


def numbers(action: FailureAction, ends: list[TaskState]) -> Iterator[tuple[str, int]]:
    """Fire until each of these runs has ended, as the ticker does."""
    last: LastRun | None = None
    todo = iter(ends)
    end = next(todo, None)
    while end is not None:
        decision = decide_firing(FiringPolicies(failure_action=action), EarlierRuns(last=last))
        yield decision.state.value, decision.run_attempt
        if decision.state is SKIPPED:
            assert last is not None
            last = replace(last, skipped_since=True)
        else:
            last = LastRun(end, decision.run_attempt)
            end = next(todo, None)


def test_run_numbers_over_consecutive_failures() -> None:
    ends = [TaskState.FAIL, TaskState.FAIL, TaskState.SUCCESS, TaskState.CANCEL, TaskState.SUCCESS]
    assert list(numbers(FAILURE.SKIP, ends)) == [
        ("pending", 1),
        ("skipped", 2),
        ("pending", 3),
        ("skipped", 4),
        ("pending", 5),
        ("pending", 1),
        ("skipped", 2),
        ("pending", 3),
    ]
    assert [n for _, n in numbers(FAILURE.RETRY, ends)] == [1, 2, 3, 1, 2]
    assert [n for _, n in numbers(FAILURE.RUN_NEW, ends)] == [1, 1, 1, 1, 1]


# --- concurrency ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "limit", "active", "queued", "state"),
    [
        (CONCURRENCY.SKIP, 2, 1, 0, PENDING),
        (CONCURRENCY.SKIP, 2, 2, 0, SKIPPED),
        (CONCURRENCY.SKIP, 2, 3, 0, SKIPPED),
        (CONCURRENCY.SKIP, 0, 9, 0, PENDING),
        (CONCURRENCY.QUEUE, 2, 1, 0, PENDING),
        (CONCURRENCY.QUEUE, 2, 2, 0, QUEUED),
        (CONCURRENCY.QUEUE, 2, 1, 1, QUEUED),  # below the limit, but behind a queued run
        (CONCURRENCY.QUEUE, 0, 9, 0, PENDING),
        (CONCURRENCY.PARALLEL, 2, 2, 0, PENDING),
    ],
)
@pytest.mark.parametrize("kind", FiringKind)
def test_concurrency(
    policy: ConcurrencyPolicy,
    limit: int,
    active: int,
    queued: int,
    state: TaskState,
    kind: FiringKind,
) -> None:
    policies = FiringPolicies(concurrency_policy=policy, max_concurrency=limit)
    earlier = EarlierRuns(tuple(map(ActiveRun, range(active))), tuple(range(100, 100 + queued)))
    decision = decide_firing(policies, earlier, kind)
    cause = None if state is PENDING else Cause.CONCURRENCY
    assert outcome(decision) == (state, cause, 1, ())


def test_concurrency_reasons() -> None:
    earlier = EarlierRuns((ActiveRun(1), ActiveRun(2)), queued=(3,))
    policies = FiringPolicies(concurrency_policy=CONCURRENCY.QUEUE, max_concurrency=2)
    assert decide_firing(policies, earlier).reason == (
        "queued as number 2: 2 runs are under way, max_concurrency is 2"
    )
    policies = replace(policies, concurrency_policy=CONCURRENCY.SKIP)
    assert decide_firing(policies, earlier).reason == (
        "skipped: 2 runs are under way, max_concurrency is 2 and concurrency_policy is SKIP"
    )


# --- manual ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", OVERLAP)
def test_overlap_does_not_apply_to_a_manual_trigger(overlap: OverlapAction) -> None:
    assert outcome(decide_firing(FiringPolicies(overlap), RUNNING, MANUAL)) == (
        PENDING,
        None,
        1,
        (),
    )


@pytest.mark.parametrize("overlap", OVERLAP)
def test_a_manual_trigger_is_subject_to_the_limit(overlap: OverlapAction) -> None:
    policies = FiringPolicies(overlap, FAILURE.RUN_NEW, CONCURRENCY.SKIP, 1)
    decision = decide_firing(policies, RUNNING, MANUAL)
    assert outcome(decision) == (SKIPPED, Cause.CONCURRENCY, 1, ())


@pytest.mark.parametrize(
    ("action", "skipped_since", "number"),
    [
        (FAILURE.RUN_NEW, False, 1),
        (FAILURE.RETRY, False, 4),
        (FAILURE.SKIP, False, 4),
        (FAILURE.SKIP, True, 5),
    ],
)
def test_a_manual_trigger_is_not_skipped_for_a_failure(
    action: FailureAction, skipped_since: bool, number: int
) -> None:
    earlier = EarlierRuns(last=replace(FAILED, skipped_since=skipped_since))
    decision = decide_firing(FiringPolicies(failure_action=action), earlier, MANUAL)
    assert outcome(decision) == (PENDING, None, number, ())


# --- all combinations of policies -----------------------------------------------------------------

ALL_POLICIES = [FiringPolicies(*p) for p in product(OVERLAP, FAILURE, CONCURRENCY, (0, 1, 2))]
ALL_EARLIER = [
    EarlierRuns(active, queued, last)
    for active, queued, last in product(
        (
            (),
            (ActiveRun(1),),
            (ActiveRun(1, started=False),),
            (ActiveRun(1, cancelling=True), ActiveRun(2)),
        ),
        ((), (8,)),
        (
            None,
            LastRun(TaskState.SUCCESS, 1),
            LastRun(TaskState.FAIL, 2),
            LastRun(TaskState.CANCEL, 2, True),
        ),
    )
]


@pytest.mark.parametrize("kind", FiringKind)
def test_a_decision_is_needed_exactly_if_it_can_differ(kind: FiringKind) -> None:
    plain = (PENDING, None, 1, ())
    for policies in ALL_POLICIES:
        # A run can be queued only by a limit, or behind replaced runs that have not ended.
        decisions = {outcome(decide_firing(policies, earlier, kind)) for earlier in ALL_EARLIER}
        assert needs_decision(policies, kind) == (decisions != {plain}), policies
    assert not needs_decision(FiringPolicies(), kind)


def test_every_decision_has_a_reason_and_only_cancel_prev_cancels() -> None:
    for policies, earlier, kind in product(ALL_POLICIES, ALL_EARLIER, FiringKind):
        decision = decide_firing(policies, earlier, kind)
        assert decision.reason
        assert (decision.cause is None) == (decision.state is PENDING)
        if decision.cancel:
            assert policies.overlap_action is OVERLAP.CANCEL_PREV
            assert kind is FiringKind.SCHEDULED
