"""What becomes of firings: decided once, under their job's policies, never lost without a word."""

from collections.abc import Callable, Iterator

import pytest

from drumline.domain.firing import Decision, Misfire
from drumline.domain.states import TaskState
from drumline.domain.verdict import End
from drumline.errors import Conflict
from drumline.store import decisions, firings, jobs, keepers, missed, retention, runs, tasks
from drumline.store.database import Database
from drumline.store.runs import Raced
from drumline.store.tx import Tx
from tests.store.job_world import SECOND, START, JobWorld, stopped_clock
from tests.store.world import REGION, at_once, commit_of_unknown_fate, while_open

PENDING, QUEUED, SKIPPED = TaskState.PENDING, TaskState.SCHEDULED, TaskState.SKIPPED


@pytest.fixture
def world(database: Database) -> Iterator[JobWorld]:
    with stopped_clock(database) as clock:
        yield JobWorld(database, clock)


def until_decided(work: Callable[[], Decision | None]) -> Decision | None:
    """As every decider does it: who loses a race looks again."""
    while True:
        try:
            return work()
        except Raced:
            continue


# --- overlap -------------------------------------------------------------------------------------


def test_overlap_skip_leaves_a_row_with_its_reason(world: JobWorld) -> None:
    job_id, worker = world.job(overlap_action="SKIP"), world.keeper()
    world.fire(job_id, 1)
    world.start(job_id, 1, worker)
    assert world.fire(job_id, 2).state is SKIPPED
    row = world.at(job_id, 2)
    assert (row.status, row.cause, row.owner, row.active_job_id) == (
        "skipped", "overlap", None, None,
    )  # fmt: skip
    assert "1 earlier run is still running" in row.info
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

    world.finish(job_id, 2, worker, End.KILLED)
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

        def replace(new_id: int = new.id) -> Decision | None:
            return until_decided(
                lambda: world.write(lambda tx: decisions.fire(tx, {new_id: job_id}).get(new_id))
            )

        _, decision = at_once(lambda old=old: runs.acquire(world.database, worker, old), replace)
        status = world.at(job_id, second).status
        assert isinstance(decision, Decision)
        if status == "running":
            assert decision.state is QUEUED and world.at(job_id, second).stop == 2
            world.finish(job_id, second, worker, End.KILLED)
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


@pytest.mark.parametrize("end", [End.ERROR, End.TIMEOUT, End.KILLED])
def test_failure_retry_counts_on_until_it_succeeds(world: JobWorld, end: End) -> None:
    job_id, worker = world.job(failure_action="RETRY"), world.keeper()
    numbers = [
        world.run(job_id, second, worker, how).run_attempt
        for second, how in enumerate((end, end, End.SUCCESS, end, End.SUCCESS), 1)
    ]
    assert numbers == [1, 2, 3, 1, 2]
    assert [row.run_attempt for row in world.firings(job_id)] == numbers


def test_failure_skip_skips_exactly_one(world: JobWorld) -> None:
    job_id, worker = world.job(failure_action="SKIP"), world.keeper()
    assert world.run(job_id, 1, worker, End.ERROR).run_attempt == 1
    skip = world.fire(job_id, 2)
    assert (skip.state, skip.cause, skip.run_attempt) == (SKIPPED, "failure", 2)
    assert world.at(job_id, 2).run_attempt == 2
    assert world.run(job_id, 3, worker, End.ERROR).run_attempt == 3
    assert world.fire(job_id, 4).state is SKIPPED
    assert world.run(job_id, 5, worker).run_attempt == 5
    assert world.run(job_id, 6, worker).run_attempt == 1


def test_what_overlapped_the_failing_run_is_not_its_skip(world: JobWorld) -> None:
    job_id = world.job(failure_action="SKIP", overlap_action="SKIP")
    worker = world.keeper()
    world.fire(job_id, 1)
    world.start(job_id, 1, worker)
    assert world.fire(job_id, 2).cause == "overlap"
    world.clock.at(2.5)
    world.finish(job_id, 1, worker, End.ERROR)
    assert world.fire(job_id, 3).cause == "failure", "the one skip after the failure"
    assert world.fire(job_id, 4).run_attempt == 3


def test_a_misfire_after_the_failure_is_its_skip(world: JobWorld) -> None:
    job_id, worker = world.job(failure_action="SKIP"), world.keeper()
    world.run(job_id, 1, worker, End.ERROR)
    world.clock.at(60)
    world.settle_missed(job_id)
    assert world.at(job_id, 49).cause == "misfire"
    decision = world.fire(job_id, 61)
    assert (decision.state, decision.run_attempt) == (PENDING, 3)


def test_the_last_run_is_one_that_started(world: JobWorld) -> None:
    job_id, worker = world.job(failure_action="RETRY"), world.keeper()
    world.run(job_id, 1, worker, End.ERROR)
    never = world.fire(job_id, 2)
    world.set_task(world.at(job_id, 2).id, status="cancel", owner=None, finished_at=world.clock.now,
                   active_job_id=None)  # fmt: skip
    assert never.run_attempt == 2
    assert world.fire(job_id, 3).run_attempt == 2


# --- concurrency ---------------------------------------------------------------------------------


def start_queued(world: JobWorld, job_id: int) -> list[float]:
    """The seconds whose runs are let go."""
    flagged = world.job_row(job_id).queued
    looked = world.database.read(lambda tx: decisions.startable_jobs(tx, REGION))
    ids = world.write(lambda tx: decisions.start_queued(tx, job_id))
    assert bool(looked) == (bool(ids) or (flagged and not world.seconds(job_id, "scheduled")))
    return [(world.task(i).scheduled_at - START) / SECOND for i in ids]


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
    world.finish(job_id, 3, worker, End.ERROR)
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

    def fire(firing_id: int) -> Decision | None:
        return until_decided(
            lambda: world.write(lambda tx: decisions.fire(tx, {firing_id: job_id}).get(firing_id))
        )

    def trigger(n: int) -> Decision | None:
        def work(tx: Tx) -> Decision:
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

    def ticker() -> list[Decision]:
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
            except Raced:
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
    world.run(job_id, 1, worker, End.ERROR)
    world.clock.at(1.5)
    task_id, decision = world.write(lambda tx: decisions.trigger(tx, job_id))
    assert decision.state is PENDING
    assert world.task(task_id).fired_by == "manual"
    assert world.task(task_id).scheduled_at == world.clock.now
    world.clock.at(1.6)
    task_id, decision = world.write(lambda tx: decisions.trigger(tx, job_id))
    assert decision.state is QUEUED
    assert world.task(task_id).info.startswith("queued as number 1")
    assert world.fire(job_id, 2).cause == "overlap", "a scheduled one sees the manual one"


def test_a_retry_by_hand_keeps_to_the_limit(world: JobWorld) -> None:
    job_id, worker = world.job(max_concurrency=1, concurrency_policy="SKIP"), world.keeper()
    world.run(job_id, 1, worker, End.ERROR)
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
        *(lambda: world.write(lambda tx: firings.pass_on(tx, ids)) for _ in range(2))
    )
    assert one + two == 3
    rows = world.firings(job_id)
    assert {row.status for row in rows} == {"pending"}
    assert [row.due_at for row in rows] == [row.scheduled_at for row in rows]


def test_what_was_passed_on_ahead_is_not_under_way(world: JobWorld) -> None:
    job_id = world.job(overlap_action="PARALLEL", max_concurrency=1, concurrency_policy="SKIP")
    world.materialise(job_id, 2)
    ids = [row.id for row in world.firings(job_id)]
    world.write(lambda tx: firings.pass_on(tx, ids))
    world.clock.at(0.5)
    assert world.write(lambda tx: decisions.trigger(tx, job_id))[1].state is PENDING


# --- missed --------------------------------------------------------------------------------------


def gap(world: JobWorld, **values: object) -> int:
    """A ticker that died at second 5, when it had materialised up to 20; now it is second 60.

    The grace is 10 s: seconds 50 to 60 are still to run, 6 to 49 are missed.
    """
    job_id = world.job(**values)
    worker = world.keeper()
    world.materialise(job_id, 20)
    for second in range(1, 6):
        world.run(job_id, second, worker)
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
    assert (row.cause, row.owner, row.active_job_id) == ("misfire", None, None)
    assert row.info.startswith("44 firings were missed, from ")
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
            except Raced:
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
    return world.database.read(lambda tx: missed.unstarted(tx, REGION, 100))


def beat(world: JobWorld, keeper_id: int) -> None:
    world.write(lambda tx: keepers.touch(tx, keeper_id))


def passed_on(world: JobWorld, **values: object) -> int:
    """A firing of second 2 that was passed on at second 1."""
    job_id = world.job(cron_expr="2 * * * * *", **values)
    world.clock.at(1)
    world.materialise(job_id, 2)
    firing = world.at(job_id, 2)
    world.write(lambda tx: firings.pass_on(tx, [firing.id]))
    return job_id


def test_a_run_that_nobody_was_there_to_start_is_judged_again(world: JobWorld) -> None:
    dead = world.keeper()
    job_id = passed_on(world)
    beat(world, dead)
    world.clock.at(600)
    world.keeper()
    (found,) = unstarted(world)
    assert world.write(lambda tx: missed.recall(tx, [found])) == 1
    assert world.undecided(job_id) == [2]
    world.settle_missed(job_id)
    assert world.seconds(job_id) == [542], "one gap from second 2 on, one row"
    assert world.at(job_id, 542).info.startswith("10 firings were missed")


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
    assert world.write(lambda tx: missed.recall(tx, [found])) == 0
    assert world.at(job_id, 2).status == "running"


# --- after completion ----------------------------------------------------------------------------


def plan(world: JobWorld, job_id: int) -> list[float]:
    """What a ticker plans for a job that fires after its own completion."""
    rows = world.database.read(lambda tx: jobs.idle_after_completion(tx, REGION, 10))
    for row in rows:
        assert row.id == job_id
        world.write(lambda tx, row=row: firings.plan_after(tx, row))
    return world.seconds(job_id, "scheduled")


def test_a_fixed_delay_counts_from_each_end(world: JobWorld) -> None:
    job_id = world.job(cron_expr="@after 5s", by_clock=False)
    worker = world.keeper()
    assert plan(world, job_id) == [0], "the first at once"
    assert plan(world, job_id) == [0], "and only one"
    firing = world.at(job_id, 0)
    world.write(lambda tx: firings.pass_on(tx, [firing.id]))
    assert plan(world, job_id) == []
    world.start(job_id, 0, worker)
    world.clock.at(7)
    assert plan(world, job_id) == [], "not while it runs"
    world.finish(job_id, 0, worker, End.ERROR)
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
    world.write(lambda tx: firings.pass_on(tx, [firing.id]))
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


# --- kept ----------------------------------------------------------------------------------------


def test_retention_keeps_what_the_next_decision_asks_for(world: JobWorld) -> None:
    yearly = world.job(name="yearly", failure_action="SKIP")
    often = world.job(name="often")
    worker = world.keeper()
    world.run(yearly, 1, worker)
    world.run(yearly, 2, worker, End.ERROR)
    world.fire(yearly, 3)
    for second in (1, 2, 3):
        world.run(often, second, worker)
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


def test_a_look_at_what_is_due_waits_for_nobody(world: JobWorld) -> None:
    """A ticker that decides holds up neither the other's look nor a worker's run."""
    job_id, worker = world.job(overlap_action="SKIP"), world.keeper()
    other = world.job(name="other", overlap_action="SKIP")
    world.fire(other, 1)
    world.clock.at(2)
    world.materialise(job_id, 2)
    firing = world.at(job_id, 2)

    def look() -> int:
        return len(world.database.read(lambda tx: firings.undecided(tx, REGION, tx.now, 10)))

    found = while_open(
        world.database, lambda tx: decisions.fire(tx, {firing.id: job_id}).get(firing.id), look
    )
    assert found == 2, "the firing is undecided until the commit"
    world.start(other, 1, worker)
