"""The limit of a job is kept: its queue in order, deciders at once, and what is passed on ahead."""

import pytest

from drumline.domain.jobs.firing import FiringDecision
from drumline.domain.release import RunEnd
from drumline.errors import Conflict
from drumline.store.job import decisions, firings
from drumline.store.task import tasks
from drumline.store.tx import RaceLost, Tx
from tests.store.job_world import PENDING, QUEUED, SKIPPED, JobWorld, start_queued, until_decided
from tests.store.world import REGION, at_once, commit_of_unknown_fate, not_none, while_open


def test_queue_really_queues_in_order(world: JobWorld) -> None:
    job_id, worker = world.job(max_concurrency=2), world.keeper()
    for second in (1, 2):
        assert world.fire(job_id, second).state is PENDING
        world.start(job_id, second, worker)
    for second in (3, 4, 5):
        decision = world.fire(job_id, second)
        assert decision.state is QUEUED
        assert decision.reason.startswith(f"queued as number {second - 2}")
    assert world.job_row(job_id).queued
    assert start_queued(world, job_id) == []
    world.finish(job_id, 2, worker)
    assert world.fire(job_id, 6).state is QUEUED, "behind the others, though a place is free"
    assert start_queued(world, job_id) == [3]
    assert world.at(job_id, 3).cause is None
    world.finish(job_id, 1, worker)
    world.start(job_id, 3, worker)
    world.finish(job_id, 3, worker, RunEnd.ERROR)
    assert start_queued(world, job_id) == [4, 5]
    assert world.job_row(job_id).queued
    for second in (4, 5):
        world.start(job_id, second, worker)
        world.finish(job_id, second, worker)
    assert start_queued(world, job_id) == [6]
    assert not world.job_row(job_id).queued
    assert world.fire(job_id, 7).state is PENDING
    world.check_laws()


def test_a_queue_that_was_cancelled_by_hand_is_forgotten(world: JobWorld) -> None:
    job_id, worker = world.job(max_concurrency=1), world.keeper()
    world.fire(job_id, 1)
    world.start(job_id, 1, worker)
    world.fire(job_id, 2)
    queued = world.at(job_id, 2).id
    world.write(lambda tx: tasks.cancel(tx, queued, REGION, force=False))
    assert start_queued(world, job_id) == []
    assert not world.job_row(job_id).queued


def test_deciders_at_once_cannot_pass_the_limit(world: JobWorld) -> None:
    """Three firings and three manual triggers, each on its own; the limit is two."""
    job_id = world.job(max_concurrency=2, concurrency_policy="SKIP", misfire_grace_seconds=60)
    world.clock.at(3)
    world.materialise(job_id, 3)
    ids = [row.id for row in world.firings(job_id)]

    def fire(firing_id: int) -> FiringDecision | None:
        return until_decided(
            lambda: world.write(lambda tx: decisions.fire(tx, {firing_id: job_id}).get(firing_id))
        )

    def trigger(n: int) -> FiringDecision | None:
        def work(tx: Tx) -> FiringDecision:
            tx.now += n
            return decisions.trigger(tx, job_id)[1]

        return until_decided(lambda: world.write(work))

    made = at_once(
        *(lambda i=i: fire(i) for i in ids), *(lambda n=n: trigger(n) for n in (1, 2, 3))
    )
    states = [decision.state for decision in made if decision is not None]
    assert sorted(states) == [PENDING] * 2 + [SKIPPED] * 4
    assert len(world.seconds(job_id, "pending")) == 2
    assert world.job_row(job_id).decision == 6
    world.check_laws()


def test_tickers_at_once_decide_each_firing_once(world: JobWorld) -> None:
    job_id = world.job(overlap_action="SKIP", misfire_grace_seconds=60)
    world.clock.at(5)
    world.materialise(job_id, 5)
    ids = [row.id for row in world.firings(job_id)]

    def ticker() -> list[FiringDecision]:
        found = []
        for firing in ids:
            decision = until_decided(
                lambda i=firing: world.write(lambda tx: decisions.fire(tx, {i: job_id}).get(i))  # type: ignore[misc]
            )
            found += [decision] if decision else []
        return found

    one, two = at_once(ticker, ticker)
    assert len(one) + len(two) == 5
    assert world.seconds(job_id, "pending") == [1]
    assert world.seconds(job_id, "skipped") == [2, 3, 4, 5]


def test_tickers_at_once_start_no_more_of_a_queue_than_fit(world: JobWorld) -> None:
    job_id, worker = world.job(max_concurrency=2), world.keeper()
    for second in range(1, 7):
        world.fire(job_id, second)
    for second in (1, 2):
        world.start(job_id, second, worker)
        world.finish(job_id, second, worker)

    def ticker() -> int:
        while True:
            try:
                return len(world.write(lambda tx: decisions.start_queued(tx, job_id)))
            except RaceLost:
                continue

    assert sorted(at_once(ticker, ticker, ticker)) == [0, 0, 2]
    assert world.seconds(job_id, "pending") == [3, 4]


def test_a_decision_whose_commit_is_unknown_is_made_once(world: JobWorld) -> None:
    job_id = world.job(overlap_action="SKIP")
    world.clock.at(1)
    world.materialise(job_id, 1)
    firing = world.at(job_id, 1)
    with commit_of_unknown_fate(world.database):
        assert (
            world.write(lambda tx: decisions.fire(tx, {firing.id: job_id}).get(firing.id)) is None
        )
    assert world.seconds(job_id, "pending") == [1]


def test_a_manual_trigger_knows_only_concurrency(world: JobWorld) -> None:
    policies = {"overlap_action": "SKIP", "failure_action": "SKIP"}
    job_id, worker = world.job(max_concurrency=1, **policies), world.keeper()
    world.run_firing(job_id, 1, worker, RunEnd.ERROR)
    world.clock.at(1.5)
    task_id, decision = world.write(lambda tx: decisions.trigger(tx, job_id))
    assert decision.state is PENDING
    assert world.task(task_id).fired_by == "manual"
    assert world.task(task_id).scheduled_at == world.clock.now
    world.clock.at(1.6)
    task_id, decision = world.write(lambda tx: decisions.trigger(tx, job_id))
    assert decision.state is QUEUED
    assert not_none(world.task(task_id).info).startswith("queued as number 1")
    assert world.fire(job_id, 2).cause == "overlap", "a scheduled one sees the manual one"


def test_a_retry_by_hand_keeps_to_the_limit(world: JobWorld) -> None:
    job_id, worker = world.job(max_concurrency=1, concurrency_policy="SKIP"), world.keeper()
    world.run_firing(job_id, 1, worker, RunEnd.ERROR)
    world.write(lambda tx: decisions.admit_again(tx, job_id))
    world.fire(job_id, 2)
    with pytest.raises(Conflict, match="1 runs under way, its max_concurrency is 1"):
        world.write(lambda tx: decisions.admit_again(tx, job_id))


def test_plain_firings_are_passed_on_ahead_and_only_once(world: JobWorld) -> None:
    job_id = world.job()
    world.materialise(job_id, 3)
    assert firings.is_plain(world.job_row(job_id))
    assert not firings.is_plain(world.job_row(world.job(name="other", failure_action="RETRY")))
    ids = [row.id for row in world.firings(job_id)]
    one, two = at_once(
        *(lambda: world.write(lambda tx: firings.make_pending(tx, ids)) for _ in range(2))
    )
    assert one + two == 3
    rows = world.firings(job_id)
    assert {row.status for row in rows} == {"pending"}
    assert [row.due_at for row in rows] == [row.scheduled_at for row in rows]


def test_what_was_passed_on_ahead_is_not_under_way(world: JobWorld) -> None:
    job_id = world.job(overlap_action="PARALLEL", max_concurrency=1, concurrency_policy="SKIP")
    world.materialise(job_id, 2)
    ids = [row.id for row in world.firings(job_id)]
    world.write(lambda tx: firings.make_pending(tx, ids))
    world.clock.at(0.5)
    assert world.write(lambda tx: decisions.trigger(tx, job_id))[1].state is PENDING


def test_a_look_at_what_is_due_waits_for_nobody(world: JobWorld) -> None:
    """A ticker that decides holds up neither the other's look nor a worker's run."""
    job_id, worker = world.job(overlap_action="SKIP"), world.keeper()
    other = world.job(name="other", overlap_action="SKIP")
    world.fire(other, 1)
    world.clock.at(2)
    world.materialise(job_id, 2)
    firing = world.at(job_id, 2)

    def look() -> int:
        return len(world.database.read(lambda tx: firings.read_undecided(tx, REGION, tx.now, 10)))

    found = while_open(
        world.database, lambda tx: decisions.fire(tx, {firing.id: job_id}).get(firing.id), look
    )
    assert found == 2, "the firing is undecided until the commit"
    world.start(other, 1, worker)
