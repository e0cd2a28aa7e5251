"""Firings that were missed: caught up with as the job says, and never lost without a word."""

import pytest

from drumline.domain.jobs.catch_up import Misfire
from drumline.store.job import decisions, firings, missed
from drumline.store.node import keepers
from drumline.store.tables import NOBODY
from drumline.store.tx import RaceLost
from tests.store.job_world import SECOND, START, JobWorld
from tests.store.world import REGION, at_once, not_none

# --- missed --------------------------------------------------------------------------------------


def gap(world: JobWorld, **values: object) -> int:
    """A ticker that died at second 5, when it had materialised up to 20; now it is second 60.

    The grace is 10 s: seconds 50 to 60 are still to run, 6 to 49 are missed.
    """
    job_id = world.job(**values)
    worker = world.keeper()
    world.materialise(job_id, 20)
    for second in range(1, 6):
        world.run_firing(job_id, second, worker)
    world.clock.at(60)
    return job_id


GRACE = [float(second) for second in range(50, 61)]


def test_what_was_missed_is_gone_and_one_row_says_so(world: JobWorld) -> None:
    job_id = gap(world)
    misfire = world.settle_missed(job_id)
    assert isinstance(misfire, Misfire) and misfire.count == 44
    assert world.undecided(job_id) == GRACE
    row = world.at(job_id, 49)
    assert world.seconds(job_id, "skipped") == [49]
    assert (row.cause, row.owner, row.active_job_id) == ("misfire", NOBODY, None)
    assert not_none(row.info).startswith("44 firings were missed, from ")
    assert row.finished_at == world.clock.now
    assert world.job_row(job_id).fired_until == world.clock.now
    assert world.settle_missed(job_id) is None, "done once"
    assert world.seconds(job_id, "skipped") == [49]
    world.check_laws()


def test_compact_runs_once_for_the_whole_gap(world: JobWorld) -> None:
    job_id = gap(world, catch_up_mode="COMPACT")
    misfire = world.settle_missed(job_id)
    assert isinstance(misfire, Misfire) and misfire.count == 43
    assert world.undecided(job_id) == [49, *GRACE]
    assert world.seconds(job_id, "skipped") == [48]
    world.settle_missed(job_id)
    assert world.undecided(job_id) == [49, *GRACE]


def test_compact_within_what_was_materialised_runs_once_too(world: JobWorld) -> None:
    job_id = world.job(catch_up_mode="COMPACT")
    world.materialise(job_id, 100)
    world.clock.at(60)
    world.settle_missed(job_id)
    assert world.undecided(job_id) == [49, *GRACE]
    assert world.seconds(job_id, "skipped") == [48]
    assert world.job_row(job_id).fired_until == START + 100 * SECOND


def test_full_misses_none_and_fires_none_twice(world: JobWorld) -> None:
    job_id = gap(world, catch_up_mode="FULL")
    assert world.settle_missed(job_id) is None
    assert world.seconds(job_id) == [float(second) for second in range(1, 61)]
    assert world.undecided(job_id) == [float(second) for second in range(6, 61)]
    world.settle_missed(job_id)
    assert world.seconds(job_id) == [float(second) for second in range(1, 61)]


def test_full_is_bounded_and_the_newest_run(world: JobWorld) -> None:
    job_id = gap(world, catch_up_mode="FULL")
    misfire = world.settle_missed(job_id, bound=10)
    assert isinstance(misfire, Misfire) and misfire.count == 34
    assert world.undecided(job_id) == [*map(float, range(40, 50)), *GRACE]
    assert world.seconds(job_id, "skipped") == [39]


def test_nothing_is_caught_up_from_before_the_last_change(world: JobWorld) -> None:
    job_id = gap(world, catch_up_mode="FULL")
    world.change(job_id, description="new")
    world.clock.at(62)
    assert world.settle_missed(job_id) is None
    assert world.undecided(job_id) == [61, 62]


@pytest.mark.parametrize("mode", ["NONE", "COMPACT", "FULL"])
def test_tickers_at_once_settle_a_gap_once(world: JobWorld, mode: str) -> None:
    job_id = gap(world, catch_up_mode=mode)

    def ticker() -> None:
        while True:
            try:
                world.settle_missed(job_id)
                return
            except RaceLost:
                continue

    at_once(ticker, ticker, ticker)
    assert len(world.seconds(job_id, "skipped")) == (0 if mode == "FULL" else 1)
    kept = {"NONE": [], "COMPACT": [49.0], "FULL": [float(s) for s in range(6, 50)]}[mode]
    assert world.undecided(job_id) == kept + GRACE
    world.check_laws()


def test_a_disabled_job_catches_up_with_nothing(world: JobWorld) -> None:
    job_id = gap(world, catch_up_mode="FULL")
    world.change(job_id, status="DISABLED")
    assert world.settle_missed(job_id) is None
    assert world.undecided(job_id) == []


def test_a_job_that_ended_in_the_gap_fires_no_further(world: JobWorld) -> None:
    job_id = gap(world, catch_up_mode="FULL", ends_at=START + 30 * SECOND)
    assert world.settle_missed(job_id) is None
    assert world.seconds(job_id) == [float(second) for second in range(1, 31)]


# --- let through, and missed all the same --------------------------------------------------------


def unstarted(world: JobWorld) -> list[int]:
    return world.database.read(lambda tx: missed.read_unstarted(tx, REGION, 100))


def beat(world: JobWorld, keeper_id: int) -> None:
    world.write(lambda tx: keepers.record_heartbeat(tx, keeper_id))


def passed_on(world: JobWorld, **values: object) -> int:
    """A firing of second 2 that was passed on at second 1."""
    job_id = world.job(cron_expr="2 * * * * *", **values)
    world.clock.at(1)
    world.materialise(job_id, 2)
    firing = world.at(job_id, 2)
    world.write(lambda tx: firings.make_pending(tx, [firing.id]))
    return job_id


def test_a_run_that_nobody_was_there_to_start_is_judged_again(world: JobWorld) -> None:
    dead = world.keeper()
    job_id = passed_on(world)
    beat(world, dead)
    world.clock.at(600)
    world.keeper()
    (found,) = unstarted(world)
    assert world.write(lambda tx: missed.make_undecided(tx, [found])) == 1
    assert world.undecided(job_id) == [2]
    world.settle_missed(job_id)
    assert world.seconds(job_id) == [542], "one gap from second 2 on, one row"
    assert not_none(world.at(job_id, 542).info).startswith("10 firings were missed")


def test_a_run_behind_a_backlog_waits_on(world: JobWorld) -> None:
    worker = world.keeper()
    passed_on(world)
    for second in (5, 600):
        world.clock.at(second)
        beat(world, worker)
    assert unstarted(world) == []


def test_a_worker_that_came_within_the_grace_had_its_chance(world: JobWorld) -> None:
    passed_on(world)
    world.clock.at(9)
    worker = world.keeper()
    world.clock.at(600)
    beat(world, worker)
    assert unstarted(world) == []


def test_what_an_operator_asked_for_is_never_dropped(world: JobWorld) -> None:
    job_id = world.job()
    world.write(lambda tx: decisions.trigger(tx, job_id))
    world.clock.at(600)
    assert unstarted(world) == []


def test_what_started_meanwhile_is_not_recalled(world: JobWorld) -> None:
    job_id = passed_on(world)
    world.clock.at(600)
    worker = world.keeper()
    (found,) = unstarted(world)
    world.start(job_id, 2, worker)
    assert world.write(lambda tx: missed.make_undecided(tx, [found])) == 0
    assert world.at(job_id, 2).status == "running"
