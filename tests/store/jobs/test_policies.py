"""What becomes of a firing by its job's policies: while another runs, and after a failure."""

from functools import partial

import pytest

from drumline.domain.jobs.firing import FiringDecision
from drumline.domain.release import RunEnd
from drumline.store.tables import NOBODY
from drumline.store.task import retention, runs
from drumline.store.tx import Tx
from tests.store.job_world import (
    PENDING,
    QUEUED,
    SKIPPED,
    START,
    JobWorld,
    start_queued,
    until_decided,
)
from tests.store.world import REGION, at_once, not_none

# --- overlap -------------------------------------------------------------------------------------


def test_overlap_skip_leaves_a_row_with_its_reason(world: JobWorld) -> None:
    job_id, worker = world.job(overlap_action="SKIP"), world.keeper()
    world.fire(job_id, 1)
    world.start(job_id, 1, worker)
    assert world.fire(job_id, 2).state is SKIPPED
    row = world.at(job_id, 2)
    assert (row.status, row.cause, row.owner, row.active_job_id) == (
        "skipped", "overlap", NOBODY, None,
    )  # fmt: skip
    assert "1 earlier run is still running" in not_none(row.info)
    world.finish(job_id, 1, worker)
    assert world.fire(job_id, 3).state is PENDING
    world.check_laws()


def test_a_waiting_callback_and_a_retry_to_come_overlap_too(world: JobWorld) -> None:
    job_id, worker = world.job(overlap_action="SKIP"), world.keeper()
    world.fire(job_id, 1)
    world.start(job_id, 1, worker)
    world.set_task(world.at(job_id, 1).id, status="waiting_callback", owner=-2)
    assert world.fire(job_id, 2).state is SKIPPED
    world.set_task(world.at(job_id, 1).id, status="pending", owner=0, due_at=START + 10**9)
    assert world.fire(job_id, 3).state is SKIPPED


def test_cancel_prev_ends_what_waits_and_waits_for_what_runs(world: JobWorld) -> None:
    job_id, worker = world.job(overlap_action="CANCEL_PREV"), world.keeper()
    world.fire(job_id, 1)
    decision = world.fire(job_id, 2)
    assert decision.state is PENDING, "the first had not started: nothing to wait for"
    assert (world.at(job_id, 1).status, world.at(job_id, 1).cause) == ("cancel", "overlap")

    world.start(job_id, 2, worker)
    decision = world.fire(job_id, 3)
    assert decision.state is QUEUED
    assert decision.cancel == (world.at(job_id, 2).id,)
    assert world.at(job_id, 2).stop == 2, "its keeper is told to kill it"
    assert start_queued(world, job_id) == []
    assert world.fire(job_id, 4).state is QUEUED
    assert world.at(job_id, 3).status == "cancel", "replaced before it could start"

    world.finish(job_id, 2, worker, RunEnd.KILLED)
    assert start_queued(world, job_id) == [4]
    assert world.seconds(job_id, "pending") == [4]
    assert not world.job_row(job_id).queued
    world.check_laws()


def test_cancel_prev_makes_a_kill_of_an_operators_cancel(world: JobWorld) -> None:
    job_id, worker = world.job(overlap_action="CANCEL_PREV"), world.keeper()
    world.fire(job_id, 1)
    world.start(job_id, 1, worker)
    world.set_task(world.at(job_id, 1).id, stop=1)
    world.fire(job_id, 2)
    assert world.at(job_id, 1).stop == 2


def test_cancel_prev_never_lets_two_run(world: JobWorld) -> None:
    """A worker takes the old run at the very moment at which it is replaced."""
    job_id, worker = world.job(overlap_action="CANCEL_PREV"), world.keeper()
    for second in range(1, 12, 2):
        world.fire(job_id, second)
        world.clock.at(second + 1)
        world.materialise(job_id, second + 1)
        old, new = world.dues([world.at(job_id, second).id]), world.at(job_id, second + 1)

        def replace(new_id: int = new.id) -> FiringDecision | None:
            return until_decided(lambda: world.try_fire(job_id, new_id))

        _, decision = at_once(partial(runs.acquire, world.database, worker, old), replace)
        status = world.at(job_id, second).status
        assert isinstance(decision, FiringDecision)
        if status == "running":
            assert decision.state is QUEUED and world.at(job_id, second).stop == 2
            world.finish(job_id, second, worker, RunEnd.KILLED)
            assert start_queued(world, job_id) == [second + 1]
        else:
            assert (status, decision.state) == ("cancel", PENDING)
        world.start(job_id, second + 1, worker)
        world.finish(job_id, second + 1, worker)
    world.check_laws()


def test_parallel_ignores_the_limit_and_allow_does_not(world: JobWorld) -> None:
    worker = world.keeper()
    limits = {"max_concurrency": 1, "concurrency_policy": "SKIP"}
    parallel = world.job(name="parallel", overlap_action="PARALLEL", **limits)
    allow = world.job(name="allow", overlap_action="ALLOW", **limits)
    for job_id in (parallel, allow):
        world.fire(job_id, 1)
        world.start(job_id, 1, worker)
    assert world.fire(parallel, 2).state is PENDING
    decision = world.fire(allow, 2)
    assert (decision.state, decision.cause) == (SKIPPED, "concurrency")


# --- failure -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [RunEnd.ERROR, RunEnd.TIMEOUT, RunEnd.KILLED])
def test_failure_retry_counts_on_until_it_succeeds(world: JobWorld, end: RunEnd) -> None:
    job_id, worker = world.job(failure_action="RETRY"), world.keeper()
    numbers = [
        world.run_firing(job_id, second, worker, how).run_attempt
        for second, how in enumerate((end, end, RunEnd.SUCCESS, end, RunEnd.SUCCESS), 1)
    ]
    assert numbers == [1, 2, 3, 1, 2]
    assert [row.run_attempt for row in world.firings(job_id)] == numbers


def test_failure_skip_skips_exactly_one(world: JobWorld) -> None:
    job_id, worker = world.job(failure_action="SKIP"), world.keeper()
    assert world.run_firing(job_id, 1, worker, RunEnd.ERROR).run_attempt == 1
    skip = world.fire(job_id, 2)
    assert (skip.state, skip.cause, skip.run_attempt) == (SKIPPED, "failure", 2)
    assert world.at(job_id, 2).run_attempt == 2
    assert world.run_firing(job_id, 3, worker, RunEnd.ERROR).run_attempt == 3
    assert world.fire(job_id, 4).state is SKIPPED
    assert world.run_firing(job_id, 5, worker).run_attempt == 5
    assert world.run_firing(job_id, 6, worker).run_attempt == 1


def test_what_overlapped_the_failing_run_is_not_its_skip(world: JobWorld) -> None:
    job_id = world.job(failure_action="SKIP", overlap_action="SKIP")
    worker = world.keeper()
    world.fire(job_id, 1)
    world.start(job_id, 1, worker)
    assert world.fire(job_id, 2).cause == "overlap"
    world.clock.at(2.5)
    world.finish(job_id, 1, worker, RunEnd.ERROR)
    assert world.fire(job_id, 3).cause == "failure", "the one skip after the failure"
    assert world.fire(job_id, 4).run_attempt == 3


def test_a_misfire_after_the_failure_is_its_skip(world: JobWorld) -> None:
    job_id, worker = world.job(failure_action="SKIP"), world.keeper()
    world.run_firing(job_id, 1, worker, RunEnd.ERROR)
    world.clock.at(60)
    world.settle_missed(job_id)
    assert world.at(job_id, 49).cause == "misfire"
    decision = world.fire(job_id, 61)
    assert (decision.state, decision.run_attempt) == (PENDING, 3)


def test_the_last_run_is_one_that_started(world: JobWorld) -> None:
    job_id, worker = world.job(failure_action="RETRY"), world.keeper()
    world.run_firing(job_id, 1, worker, RunEnd.ERROR)
    never = world.fire(job_id, 2)
    over = {"status": "cancel", "owner": NOBODY, "active_job_id": None}
    world.set_task(world.at(job_id, 2).id, finished_at=world.clock.now, **over)
    assert never.run_attempt == 2
    assert world.fire(job_id, 3).run_attempt == 2


# --- kept ----------------------------------------------------------------------------------------


def test_retention_keeps_what_the_next_decision_asks_for(world: JobWorld) -> None:
    yearly = world.job(name="yearly", failure_action="SKIP")
    often = world.job(name="often")
    worker = world.keeper()
    world.run_firing(yearly, 1, worker)
    world.run_firing(yearly, 2, worker, RunEnd.ERROR)
    world.fire(yearly, 3)
    for second in (1, 2, 3):
        world.run_firing(often, second, worker)
    world.clock.at(10_000)
    before = world.clock.now

    def prune(tx: Tx) -> int:
        return retention.prune_tasks(tx, REGION, before)

    assert world.write(prune) == 3
    assert world.write(prune) == 0
    assert world.seconds(yearly) == [2, 3], "the last that started, and the skip that followed it"
    assert world.seconds(often) == [3]
    decision = world.fire(yearly, 10_001)
    assert (decision.state, decision.run_attempt) == (PENDING, 3)
