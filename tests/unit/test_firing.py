from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drumline.domain.firing import (
    ActiveRun,
    CatchUp,
    CatchUpMode,
    ConcurrencyPolicy,
    Decision,
    Earlier,
    FailureAction,
    FiringKind,
    LastRun,
    Listed,
    Misfire,
    OverlapAction,
    Policies,
    catch_up,
    decide,
    needs_decision,
    startable,
)
from drumline.domain.schedule import Schedule
from drumline.domain.states import Cause, TaskState

PENDING, QUEUED, SKIPPED = TaskState.PENDING, TaskState.SCHEDULED, TaskState.SKIPPED
MANUAL = FiringKind.MANUAL
OVERLAP, FAILURE, CONCURRENCY = OverlapAction, FailureAction, ConcurrencyPolicy

RUNNING = Earlier(active=(ActiveRun(4),))
FAILED = LastRun(TaskState.FAIL, 3)


def outcome(decision: Decision) -> tuple[TaskState, Cause | None, int, tuple[int, ...]]:
    return decision.state, decision.cause, decision.run_attempt, decision.cancel


def test_the_first_firing_runs() -> None:
    for overlap, failure, concurrency in product(OVERLAP, FAILURE, CONCURRENCY):
        for kind in FiringKind:
            decision = decide(Policies(overlap, failure, concurrency, 1), Earlier(), kind)
            assert outcome(decision) == (PENDING, None, 1, ())


# ---------------------------------------------------------------- overlap


@pytest.mark.parametrize(
    "earlier",
    [
        RUNNING,
        Earlier(active=(ActiveRun(4, started=False),)),
        Earlier(active=(ActiveRun(4, cancelling=True),)),
        Earlier(queued=(5,)),
    ],
)
def test_overlap_skip_skips_while_anything_is_running_or_waiting(earlier: Earlier) -> None:
    decision = decide(Policies(OVERLAP.SKIP), earlier)
    assert outcome(decision) == (SKIPPED, Cause.OVERLAP, 1, ())
    assert decision.reason == (
        "skipped: 1 earlier run is still running or waiting and overlap_action is SKIP"
    )


def test_overlap_skip_comes_before_the_queue() -> None:
    policies = Policies(OVERLAP.SKIP, FAILURE.RUN_NEW, CONCURRENCY.QUEUE, 1)
    assert decide(policies, RUNNING).cause is Cause.OVERLAP


def test_cancel_prev_cancels_what_is_unfinished_and_waits_for_what_has_started() -> None:
    earlier = Earlier((ActiveRun(4), ActiveRun(5, started=False)), queued=(6, 7))
    decision = decide(Policies(OVERLAP.CANCEL_PREV), earlier)
    assert outcome(decision) == (QUEUED, Cause.OVERLAP, 1, (4, 5, 6, 7))
    assert decision.reason == "queued: it starts when the runs that it cancels have ended"


def test_cancel_prev_runs_at_once_if_nothing_had_started() -> None:
    earlier = Earlier((ActiveRun(5, started=False),), queued=(6,))
    assert outcome(decide(Policies(OVERLAP.CANCEL_PREV), earlier)) == (PENDING, None, 1, (5, 6))


def test_cancel_prev_does_not_cancel_twice_but_still_waits() -> None:
    earlier = Earlier((ActiveRun(4, cancelling=True),))
    decision = decide(Policies(OVERLAP.CANCEL_PREV), earlier)
    assert outcome(decision) == (QUEUED, Cause.OVERLAP, 1, ())


@pytest.mark.parametrize("concurrency", CONCURRENCY)
def test_what_cancel_prev_cancels_no_longer_counts(concurrency: ConcurrencyPolicy) -> None:
    policies = Policies(OVERLAP.CANCEL_PREV, FAILURE.RUN_NEW, concurrency, 1)
    assert decide(policies, replace(RUNNING, queued=(5,))).cause is Cause.OVERLAP


def test_cancel_prev_acts_before_a_failure_is_looked_at() -> None:
    policies = Policies(OVERLAP.CANCEL_PREV, FAILURE.SKIP)
    decision = decide(policies, replace(RUNNING, last=FAILED))
    assert outcome(decision) == (SKIPPED, Cause.FAILURE, 4, (4,))


@pytest.mark.parametrize("concurrency", CONCURRENCY)
def test_overlap_parallel_ignores_the_limit(concurrency: ConcurrencyPolicy) -> None:
    policies = Policies(OVERLAP.PARALLEL, FAILURE.RUN_NEW, concurrency, 1)
    assert outcome(decide(policies, replace(RUNNING, queued=(5,)))) == (PENDING, None, 1, ())


def test_overlap_allow_goes_on_to_the_limit() -> None:
    assert outcome(decide(Policies(OVERLAP.ALLOW), RUNNING)) == (PENDING, None, 1, ())
    limited = Policies(OVERLAP.ALLOW, FAILURE.RUN_NEW, CONCURRENCY.SKIP, 1)
    assert decide(limited, RUNNING).cause is Cause.CONCURRENCY


# ---------------------------------------------------------------- the last failure


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
    assert outcome(decide(Policies(failure_action=action), Earlier(last=last))) == expected


@pytest.mark.parametrize("action", FAILURE)
@pytest.mark.parametrize(
    "state",
    [
        TaskState.SUCCESS,
        TaskState.RUNNING,
        TaskState.WAITING_CALLBACK,
        TaskState.PENDING,  # given back, or between two attempts: it has not failed yet
        TaskState.RETRY_PENDING,
    ],
)
def test_what_has_not_failed_starts_the_count_again(
    action: FailureAction, state: TaskState
) -> None:
    earlier = Earlier(last=LastRun(state, 3))
    assert outcome(decide(Policies(failure_action=action), earlier)) == (PENDING, None, 1, ())


def test_a_failure_skip_says_which_run_failed() -> None:
    decision = decide(Policies(failure_action=FAILURE.SKIP), Earlier(last=FAILED))
    assert decision.reason == (
        "skipped once: run number 3 ended in fail and failure_action is SKIP"
    )


def test_a_skip_for_another_reason_is_the_one_skip_and_takes_its_number() -> None:
    policies = Policies(OVERLAP.SKIP, FAILURE.SKIP)
    first = decide(policies, replace(RUNNING, last=FAILED))
    assert outcome(first) == (SKIPPED, Cause.OVERLAP, 4, ())
    then = decide(policies, Earlier(last=replace(FAILED, skipped_since=True)))
    assert outcome(then) == (PENDING, None, 5, ())


def numbers(action: FailureAction, ends: list[TaskState]) -> Iterator[tuple[str, int]]:
    """Fire until each of these ends has been met, as the ticker and the table would."""
    last: LastRun | None = None
    todo = iter(ends)
    end = next(todo, None)
    while end is not None:
        decision = decide(Policies(failure_action=action), Earlier(last=last))
        yield decision.state.value, decision.run_attempt
        if decision.state is SKIPPED:
            assert last is not None
            last = replace(last, skipped_since=True)
        else:
            last = LastRun(end, decision.run_attempt)
            end = next(todo, None)


def test_numbers_over_a_row_of_failures() -> None:
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


# ---------------------------------------------------------------- concurrency


@pytest.mark.parametrize(
    ("policy", "limit", "active", "queued", "state"),
    [
        (CONCURRENCY.SKIP, 2, 1, 0, PENDING),
        (CONCURRENCY.SKIP, 2, 2, 0, SKIPPED),
        (CONCURRENCY.SKIP, 2, 3, 0, SKIPPED),
        (CONCURRENCY.SKIP, 0, 9, 0, PENDING),
        (CONCURRENCY.QUEUE, 2, 1, 0, PENDING),
        (CONCURRENCY.QUEUE, 2, 2, 0, QUEUED),
        (CONCURRENCY.QUEUE, 2, 1, 1, QUEUED),  # a place is free, but another was first
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
    policies = Policies(concurrency_policy=policy, max_concurrency=limit)
    earlier = Earlier(tuple(map(ActiveRun, range(active))), tuple(range(100, 100 + queued)))
    decision = decide(policies, earlier, kind)
    cause = None if state is PENDING else Cause.CONCURRENCY
    assert outcome(decision) == (state, cause, 1, ())


def test_concurrency_reasons() -> None:
    earlier = Earlier((ActiveRun(1), ActiveRun(2)), queued=(3,))
    policies = Policies(concurrency_policy=CONCURRENCY.QUEUE, max_concurrency=2)
    assert decide(policies, earlier).reason == (
        "queued as number 2: 2 runs are under way, max_concurrency is 2"
    )
    policies = replace(policies, concurrency_policy=CONCURRENCY.SKIP)
    assert decide(policies, earlier).reason == (
        "skipped: 2 runs are under way, max_concurrency is 2 and concurrency_policy is SKIP"
    )


# ---------------------------------------------------------------- manual


@pytest.mark.parametrize("overlap", OVERLAP)
def test_overlap_does_not_apply_to_a_manual_trigger(overlap: OverlapAction) -> None:
    assert outcome(decide(Policies(overlap), RUNNING, MANUAL)) == (PENDING, None, 1, ())


@pytest.mark.parametrize("overlap", OVERLAP)
def test_a_manual_trigger_keeps_to_the_limit(overlap: OverlapAction) -> None:
    policies = Policies(overlap, FAILURE.RUN_NEW, CONCURRENCY.SKIP, 1)
    decision = decide(policies, RUNNING, MANUAL)
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
    earlier = Earlier(last=replace(FAILED, skipped_since=skipped_since))
    decision = decide(Policies(failure_action=action), earlier, MANUAL)
    assert outcome(decision) == (PENDING, None, number, ())


# ---------------------------------------------------------------- all policies at once

ALL_POLICIES = [Policies(*p) for p in product(OVERLAP, FAILURE, CONCURRENCY, (0, 1, 2))]
ALL_EARLIER = [
    Earlier(active, queued, last)
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
def test_needs_decision_exactly_when_the_answer_can_differ(kind: FiringKind) -> None:
    plain = (PENDING, None, 1, ())
    for policies in ALL_POLICIES:
        # A queue that is there has a limit that is there (or replaced runs that are ending).
        decisions = {outcome(decide(policies, earlier, kind)) for earlier in ALL_EARLIER}
        assert needs_decision(policies, kind) == (decisions != {plain}), policies
    assert not needs_decision(Policies(), kind)


def test_every_decision_says_why_and_only_replacing_cancels() -> None:
    for policies, earlier, kind in product(ALL_POLICIES, ALL_EARLIER, FiringKind):
        decision = decide(policies, earlier, kind)
        assert decision.reason
        assert (decision.cause is None) == (decision.state is PENDING)
        if decision.cancel:
            assert policies.overlap_action is OVERLAP.CANCEL_PREV
            assert kind is FiringKind.SCHEDULED


# ---------------------------------------------------------------- the queue


@pytest.mark.parametrize(
    ("policies", "active", "expected"),
    [
        (Policies(max_concurrency=3), 3, ()),
        (Policies(max_concurrency=3), 1, (7, 8)),
        (Policies(max_concurrency=3), 4, ()),  # the limit was lowered
        (Policies(max_concurrency=0), 4, (7, 8, 9)),  # the limit was lifted
        (Policies(concurrency_policy=CONCURRENCY.PARALLEL, max_concurrency=1), 4, (7, 8, 9)),
        (Policies(concurrency_policy=CONCURRENCY.SKIP, max_concurrency=2), 1, (7,)),
    ],
)
def test_queued_runs_start_in_order_as_places_become_free(
    policies: Policies, active: int, expected: tuple[int, ...]
) -> None:
    assert startable(policies, [ActiveRun(n) for n in range(active)], (7, 8, 9)) == expected


def test_a_replacing_run_starts_when_the_replaced_have_really_ended() -> None:
    policies = Policies(OVERLAP.CANCEL_PREV)
    assert startable(policies, [ActiveRun(1), ActiveRun(2, cancelling=True)], (7,)) == ()
    assert startable(policies, [], (7,)) == (7,)


def test_a_cancelled_run_that_ends_slowly_holds_only_its_own_place() -> None:
    policies = Policies(max_concurrency=2)
    assert startable(policies, [ActiveRun(1, cancelling=True)], (7, 8)) == (7,)


class Job(RuleBasedStateMachine):
    """A job's runs under random firings and ends, applied as the store would."""

    policies = Policies()

    def __init__(self) -> None:
        super().__init__()
        self.ids = 0
        self.active: dict[int, ActiveRun] = {}
        self.queued: list[int] = []
        self.started: list[int] = []
        self.gone: set[int] = set()  # cancelled before they started

    def fire(self, kind: FiringKind) -> None:
        self.ids += 1
        earlier = Earlier(tuple(self.active.values()), tuple(self.queued))
        decision = decide(self.policies, earlier, kind)
        for run in decision.cancel:
            if run in self.queued:
                self.queued.remove(run)
                self.gone.add(run)
            else:
                self.active[run] = replace(self.active[run], cancelling=True)
        if decision.state is PENDING:
            self.start(self.ids)
        elif decision.state is QUEUED:
            self.queued.append(self.ids)
        else:
            self.gone.add(self.ids)

    def start(self, run: int) -> None:
        self.active[run] = ActiveRun(run)
        self.started.append(run)

    @rule()
    def scheduled(self) -> None:
        self.fire(FiringKind.SCHEDULED)

    @rule()
    def manual(self) -> None:
        self.fire(MANUAL)

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        del self.active[data.draw(st.sampled_from(sorted(self.active)))]
        for run in startable(self.policies, tuple(self.active.values()), self.queued):
            self.queued.remove(run)
            self.start(run)

    @invariant()
    def nothing_is_lost(self) -> None:
        assert {*self.started, *self.queued, *self.gone} == set(range(1, self.ids + 1))
        assert len(self.started) + len(self.queued) + len(self.gone) == self.ids

    @invariant()
    def runs_start_in_their_order(self) -> None:
        assert self.started == sorted(self.started)

    @invariant()
    def the_limit_holds(self) -> None:
        limit = self.policies.max_concurrency or 10**9
        assert sum(not run.cancelling for run in self.active.values()) <= limit

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        assert self.active or not self.queued


class QueueingJob(Job):
    policies = Policies(max_concurrency=2)

    @invariant()
    def nobody_waits_while_a_place_is_free(self) -> None:
        assert not self.queued or len(self.active) == 2


class ReplacingJob(Job):
    policies = Policies(OVERLAP.CANCEL_PREV, max_concurrency=1)

    @invariant()
    def the_new_run_never_runs_beside_the_old(self) -> None:
        assert len(self.active) <= 1


TestQueueingJob = QueueingJob.TestCase
TestReplacingJob = ReplacingJob.TestCase
for case in (TestQueueingJob, TestReplacingJob):
    case.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


# ---------------------------------------------------------------- what was missed

MINUTE = 60_000_000
EVERY_MINUTE = Schedule.parse("* * * * *")
NONE, COMPACT, FULL = CatchUpMode.NONE, CatchUpMode.COMPACT, CatchUpMode.FULL


def minutes(*which: int) -> tuple[int, ...]:
    return tuple(n * MINUTE for n in which)


@pytest.mark.parametrize(
    ("mode", "bound", "run", "misfire"),
    [
        (NONE, 3, (), (8, 1, 8)),
        (COMPACT, 3, (8,), (7, 1, 7)),
        (FULL, 3, (6, 7, 8), (5, 1, 5)),
        (FULL, 8, (1, 2, 3, 4, 5, 6, 7, 8), None),
        (FULL, 99, (1, 2, 3, 4, 5, 6, 7, 8), None),
        (FULL, 0, (), (8, 1, 8)),
    ],
)
@pytest.mark.parametrize("source", [EVERY_MINUTE, Listed(minutes(*range(20)))])
def test_what_is_past_its_grace_goes_by_the_mode(
    source: Schedule | Listed,
    mode: CatchUpMode,
    bound: int,
    run: tuple[int, ...],
    misfire: tuple[int, int, int] | None,
) -> None:
    # Minutes 1 to 10 are due at 10:30; 9 and 10 are within the grace of 90 s and run in any mode.
    found = catch_up(
        source,
        fired_until=0,
        now=10 * MINUTE + MINUTE // 2,
        grace_us=MINUTE * 3 // 2,
        mode=mode,
        bound=bound,
    )
    expected = misfire and Misfire(misfire[0], misfire[1] * MINUTE, misfire[2] * MINUTE)
    assert found == CatchUp(minutes(*run, 9, 10), expected)


def test_exactly_at_its_grace_it_still_runs() -> None:
    for late, run in ((0, (1,)), (1, ())):
        found = catch_up(
            EVERY_MINUTE,
            fired_until=0,
            now=MINUTE + 10 + late,
            grace_us=10,
            mode=NONE,
            bound=1,
        )
        assert found.run == minutes(*run)
        assert (found.misfire is None) == bool(run)


@pytest.mark.parametrize("mode", CatchUpMode)
def test_nothing_from_before_the_last_change_is_run_or_reported(mode: CatchUpMode) -> None:
    found = catch_up(
        EVERY_MINUTE,
        fired_until=0,
        now=10 * MINUTE,
        grace_us=2 * MINUTE,
        mode=mode,
        bound=99,
        changed_at=6 * MINUTE,
    )
    gone = Misfire(1, 7 * MINUTE, 7 * MINUTE) if mode is NONE else None
    assert found == CatchUp(minutes(*([8, 9, 10] if mode is NONE else [7, 8, 9, 10])), gone)


@pytest.mark.parametrize("mode", CatchUpMode)
def test_nothing_missed_nothing_said(mode: CatchUpMode) -> None:
    for until in (10 * MINUTE, 12 * MINUTE):
        found = catch_up(
            EVERY_MINUTE, fired_until=until, now=10 * MINUTE, grace_us=0, mode=mode, bound=9
        )
        assert found == CatchUp((), None)


@given(
    st.integers(0, 50 * MINUTE),
    st.integers(0, 50 * MINUTE),
    st.integers(0, 20 * MINUTE),
    st.integers(0, 50 * MINUTE),
    st.sampled_from(CatchUpMode),
    st.integers(0, 10),
)
@settings(max_examples=200, deadline=None)
def test_every_firing_is_run_or_counted_as_missed(
    until: int, now: int, grace: int, changed: int, mode: CatchUpMode, bound: int
) -> None:
    found = catch_up(
        EVERY_MINUTE,
        fired_until=until,
        now=now,
        grace_us=grace,
        mode=mode,
        bound=bound,
        changed_at=changed,
    )
    due = list(EVERY_MINUTE.between(max(until, changed), now))
    missed = found.misfire.count if found.misfire else 0
    assert list(found.run) == due[missed:]
    if found.misfire:
        assert (found.misfire.first, found.misfire.last) == (due[0], due[missed - 1])
    old = sum(now - t > grace for t in due)
    assert missed == max(old - {NONE: 0, COMPACT: 1, FULL: bound}[mode], 0)


def test_a_misfire_says_how_many_and_when() -> None:
    assert Misfire(3, 0, 2 * MINUTE).reason == (
        "3 firings were missed, from 1970-01-01T00:00:00+00:00 to 1970-01-01T00:02:00+00:00"
    )
    assert Misfire(1, 1, 1).reason.startswith(
        "1 firing was missed, from 1970-01-01T00:00:00.000001"
    )
