"""Jobs that fire some time after their last run has ended."""

from functools import partial

from drumline.domain.release import RunEnd
from drumline.store.job import firings, jobs, missed
from tests.store.job_world import SECOND, START, JobWorld
from tests.store.world import REGION, at_once


def plan(world: JobWorld, job_id: int) -> list[float]:
    """What a ticker plans for a job that fires after its own completion."""
    rows = world.database.read(lambda tx: jobs.idle_after_completion(tx, REGION, 10))
    for row in rows:
        assert row.id == job_id
        world.write(partial(firings.plan_after, row=row))
    return world.seconds(job_id, "scheduled")


def test_a_fixed_delay_counts_from_each_end(world: JobWorld) -> None:
    job_id = world.job(cron_expr="@after 5s", by_clock=False)
    worker = world.keeper()
    assert plan(world, job_id) == [0], "the first at once"
    assert plan(world, job_id) == [0], "and only one"
    firing = world.at(job_id, 0)
    world.write(lambda tx: firings.make_pending(tx, [firing.id]))
    assert plan(world, job_id) == []
    world.start(job_id, 0, worker)
    world.clock.at(7)
    assert plan(world, job_id) == [], "not while it runs"
    world.finish(job_id, 0, worker, RunEnd.ERROR)
    world.clock.at(8)
    assert plan(world, job_id) == [12], "five seconds after the end, whenever that is noticed"
    world.clock.at(1000)
    assert not missed.is_late(world.job_row(job_id), START + 12 * SECOND, world.clock.now)


def test_tickers_at_once_plan_one_firing(world: JobWorld) -> None:
    job_id = world.job(cron_expr="@after 5s", by_clock=False)
    row = world.job_row(job_id)

    def ticker() -> bool:
        return world.write(lambda tx: firings.plan_after(tx, row))

    assert sorted(at_once(ticker, ticker, ticker)) == [False, False, True]
    assert world.seconds(job_id) == [0]


def test_a_changed_fixed_delay_does_not_fire_at_once_again(world: JobWorld) -> None:
    job_id = world.job(cron_expr="@after 60s", by_clock=False)
    worker = world.keeper()
    plan(world, job_id)
    firing = world.at(job_id, 0)
    world.write(lambda tx: firings.make_pending(tx, [firing.id]))
    world.start(job_id, 0, worker)
    world.finish(job_id, 0, worker)
    assert plan(world, job_id) == [60]
    world.clock.at(10)
    world.change(job_id, description="new")
    assert plan(world, job_id) == [60]
    world.change(job_id, status="DISABLED")
    assert plan(world, job_id) == []
    world.clock.at(500)
    world.change(job_id, status="ENABLED")
    assert plan(world, job_id) == [500], "long past its delay: now"


def test_a_fixed_delay_ends(world: JobWorld) -> None:
    job_id = world.job(cron_expr="@after 60s", by_clock=False, ends_at=START - 1)
    assert plan(world, job_id) == []
    assert world.job_row(job_id).fired_until == jobs.FOREVER
    assert world.database.read(lambda tx: jobs.idle_after_completion(tx, REGION, 10)) == []
