"""Queued runs of a job start in order, and none is lost or left waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drumline.domain.jobs.firing import (
    ActiveRun,
    EarlierRuns,
    FiringKind,
    FiringPolicies,
    decide_firing,
    startable_runs,
)
from tests.unit.firing_words import CONCURRENCY, MANUAL, OVERLAP, PENDING, QUEUED


@pytest.mark.parametrize(
    ("policies", "active", "expected"),
    [
        (FiringPolicies(max_concurrency=3), 3, ()),
        (FiringPolicies(max_concurrency=3), 1, (7, 8)),
        (FiringPolicies(max_concurrency=3), 4, ()),  # the limit was lowered
        (FiringPolicies(max_concurrency=0), 4, (7, 8, 9)),  # the limit was lifted
        (FiringPolicies(concurrency_policy=CONCURRENCY.PARALLEL, max_concurrency=1), 4, (7, 8, 9)),
        (FiringPolicies(concurrency_policy=CONCURRENCY.SKIP, max_concurrency=2), 1, (7,)),
    ],
)
def test_queued_runs_start_in_order_as_slots_become_free(
    policies: FiringPolicies, active: int, expected: tuple[int, ...]
) -> None:
    assert startable_runs(policies, [ActiveRun(n) for n in range(active)], (7, 8, 9)) == expected


def test_a_replacing_run_starts_when_the_replaced_runs_have_ended() -> None:
    policies = FiringPolicies(OVERLAP.CANCEL_PREV)
    assert startable_runs(policies, [ActiveRun(1), ActiveRun(2, cancelling=True)], (7,)) == ()
    assert startable_runs(policies, [], (7,)) == (7,)


def test_a_cancelled_run_that_ends_slowly_holds_only_its_own_slot() -> None:
    policies = FiringPolicies(max_concurrency=2)
    assert startable_runs(policies, [ActiveRun(1, cancelling=True)], (7, 8)) == (7,)


class Job(RuleBasedStateMachine):
    """A job's runs under random firings and ends, applied as the store would."""

    policies = FiringPolicies()

    def __init__(self) -> None:
        super().__init__()
        self.ids = 0
        self.active: dict[int, ActiveRun] = {}
        self.queued: list[int] = []
        self.started: list[int] = []
        self.not_started: set[int] = set()  # skipped, or cancelled before they started

    def fire(self, kind: FiringKind) -> None:
        self.ids += 1
        earlier = EarlierRuns(tuple(self.active.values()), tuple(self.queued))
        decision = decide_firing(self.policies, earlier, kind)
        for run in decision.cancel:
            if run in self.queued:
                self.queued.remove(run)
                self.not_started.add(run)
            else:
                self.active[run] = replace(self.active[run], cancelling=True)
        if decision.state is PENDING:
            self.start(self.ids)
        elif decision.state is QUEUED:
            self.queued.append(self.ids)
        else:
            self.not_started.add(self.ids)

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
        for run in startable_runs(self.policies, tuple(self.active.values()), self.queued):
            self.queued.remove(run)
            self.start(run)

    @invariant()
    def no_run_is_lost(self) -> None:
        assert {*self.started, *self.queued, *self.not_started} == set(range(1, self.ids + 1))
        assert len(self.started) + len(self.queued) + len(self.not_started) == self.ids

    @invariant()
    def runs_start_in_order(self) -> None:
        assert self.started == sorted(self.started)

    @invariant()
    def the_limit_is_kept(self) -> None:
        limit = self.policies.max_concurrency or 10**9
        assert sum(not run.cancelling for run in self.active.values()) <= limit

    @invariant()
    def no_run_waits_without_a_cause(self) -> None:
        assert self.active or not self.queued


class QueueingJob(Job):
    policies = FiringPolicies(max_concurrency=2)

    @invariant()
    def no_run_waits_below_the_limit(self) -> None:
        assert not self.queued or len(self.active) == 2


class ReplacingJob(Job):
    policies = FiringPolicies(OVERLAP.CANCEL_PREV, max_concurrency=1)

    @invariant()
    def a_replacing_run_never_runs_beside_the_replaced_one(self) -> None:
        assert len(self.active) <= 1


TestQueueingJob = QueueingJob.TestCase
TestReplacingJob = ReplacingJob.TestCase
for case in (TestQueueingJob, TestReplacingJob):
    case.settings = settings(max_examples=60, stateful_step_count=25)
