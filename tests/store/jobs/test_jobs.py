"""Jobs as definitions: their names and versions, and what a change does to their firings."""

import pytest

from drumline.domain.jobs.firing import FiringDecision
from drumline.domain.states import TaskState
from drumline.errors import NameTaken, NotFound, VersionConflict
from drumline.store.job import decisions, firings, jobs, missed
from drumline.store.job.firings import Plan
from drumline.store.tables import NOBODY
from drumline.store.task import runs
from drumline.store.tx import RaceLost
from tests.store.job_world import SECOND, STANDARD, START, JobWorld
from tests.store.world import REGION, at_once, not_none, while_open

# --- names and versions --------------------------------------------------------------------------


def test_a_job_goes_by_id_or_name_in_its_region_alone(world: JobWorld) -> None:
    first, second = world.job(name="first"), world.job(name="second")

    def found(key: int | str, region: str = REGION) -> int:
        return int(world.database.read(lambda tx: jobs.get(tx, region, key)).id)

    assert found("first") == found(first) == found(str(first)) == first
    numbered = world.job(name=str(second))
    assert found(str(second)) == numbered, "a name comes before an id"
    assert found(second) == second
    for key in ("third", "²", "9" * 30, 10**6, ""):
        with pytest.raises(NotFound, match="There is no job"):
            found(key)
    with pytest.raises(NotFound):
        found("first", "elsewhere")
    world.write(lambda tx: jobs.create(tx, "elsewhere", STANDARD | {"name": "first"}))


def test_a_name_is_taken_until_its_job_is_deleted(world: JobWorld) -> None:
    job_id = world.job(name="one")
    with pytest.raises(NameTaken, match="already a job called 'one'"):
        world.job(name="one")
    other = world.job(name="other")
    with pytest.raises(NameTaken):
        world.change(other, name="one")
    row = world.job_row(job_id)
    world.write(lambda tx: jobs.remove(tx, row))
    with pytest.raises(NotFound):
        world.database.read(lambda tx: jobs.get(tx, REGION, job_id))
    assert world.job(name="one") != job_id
    assert world.job_row(job_id).deleted, "deleted softly: its runs still have a job"


def test_a_change_asks_for_the_version_that_was_read(world: JobWorld) -> None:
    job_id = world.job()
    world.change(job_id, 1, description="new")
    assert world.job_row(job_id).version == 2
    with pytest.raises(VersionConflict, match=f"Job {job_id} is at version 2, not 1"):
        world.change(job_id, 1, description="newer")
    assert world.job_row(job_id).description == "new"


def test_of_two_changes_at_once_one_starts_again(world: JobWorld) -> None:
    job_id = world.job()
    row = world.job_row(job_id)

    def change(word: str) -> str:
        try:
            world.write(lambda tx: jobs.change(tx, row, None, {"description": word}))
        except RaceLost:
            return "raced"
        return word

    words = at_once(*(lambda word=word: change(word) for word in ("a", "b", "c", "d")))
    (won,) = {*words} - {"raced"}
    assert world.job_row(job_id).description == won
    assert world.job_row(job_id).version == 2


def test_jobs_are_listed_newest_first_in_pages(world: JobWorld) -> None:
    ids = [world.job(name=f"job-{n}", status="DISABLED" if n % 2 else "ENABLED") for n in range(6)]
    world.write(lambda tx: jobs.remove(tx, jobs.get(tx, REGION, ids[4])))

    def listed(**options: object) -> list[int]:
        rows = world.database.read(lambda tx: jobs.listed(tx, REGION, **options))  # type: ignore[arg-type]
        return [row.id for row in rows]

    assert listed() == [ids[5], ids[3], ids[2], ids[1], ids[0]]
    assert listed(status="ENABLED") == [ids[2], ids[0]]
    assert listed(limit=2) == [ids[5], ids[3]]
    assert listed(limit=2, before=ids[3]) == [ids[2], ids[1]]


# --- what a change takes back --------------------------------------------------------------------


def scene(world: JobWorld) -> int:
    """Second 1 runs, 2 is let through, 3 is queued, 4 is undecided, 5 to 9 are still to come."""
    job_id = world.job(max_concurrency=1, misfire_grace_seconds=60)
    keeper = world.keeper()
    world.clock.at(4.5)
    world.materialise(job_id, 9)
    for second, status in ((1, TaskState.PENDING), (2, TaskState.SCHEDULED)):
        decision = world.try_fire(job_id, world.at(job_id, second).id)
        assert isinstance(decision, FiringDecision) and decision.state is status
        if second == 1:
            world.start(job_id, 1, keeper)
    world.set_task(world.at(job_id, 2).id, status=TaskState.PENDING, owner=0)
    world.set_task(world.at(job_id, 3).id, owner=NOBODY)
    return job_id


def test_a_change_lets_nothing_start_as_it_was(world: JobWorld) -> None:
    job_id = scene(world)
    before = {second: world.at(job_id, second) for second in (1, 2, 3)}
    world.change(job_id, cron_expr="*/2 * * * * *", param='{"a":2}', timeout_ms=7_000, priority=8)
    assert world.seconds(job_id) == [1, 2, 3, 4], "what was to come is gone"
    running, ready, queued, undecided = (world.at(job_id, second) for second in (1, 2, 3, 4))
    assert running == before[1], "what has started is left alone"
    for row, old in ((ready, before[2]), (queued, before[3])):
        assert (row.status, row.owner) == (old.status, old.owner)
        assert (row.param, row.timeout_ms, row.priority) == ('{"a":2}', 7_000, 8)
        assert row.version == old.version + 1, "who has read it cannot start it"
    assert (undecided.status, undecided.cause) == ("skipped", "misfire")
    assert "changed before this firing was decided" in not_none(undecided.info)
    world.materialise(job_id, 9)
    assert world.seconds(job_id) == [1, 2, 3, 4, 6, 8]
    world.check_laws()


@pytest.mark.parametrize("how", ["disabled", "deleted"])
def test_a_job_that_is_stopped_starts_nothing_more(world: JobWorld, how: str) -> None:
    job_id = scene(world)
    stale = world.dues([world.at(job_id, 2).id])
    row = world.job_row(job_id)
    if how == "disabled":
        world.change(job_id, status="DISABLED")
    else:
        world.write(lambda tx: jobs.remove(tx, row))
    assert world.seconds(job_id) == [1, 2, 3, 4]
    for second in (2, 3):
        taken_back = world.at(job_id, second)
        assert (taken_back.status, taken_back.cause) == ("cancel", "cancelled")
        assert taken_back.info == f"the job was {how} before this run started"
        assert taken_back.active_job_id is None
    assert world.at(job_id, 1).status == "running"
    assert world.seconds(job_id, "scheduled", "pending") == []
    assert runs.acquire(world.database, world.keeper(), stale) == []
    assert world.database.read(lambda tx: jobs.read_jobs_behind(tx, REGION, 2**60, 10)) == []
    world.check_laws()


def test_a_job_enabled_again_starts_from_now(world: JobWorld) -> None:
    job_id = scene(world)
    world.change(job_id, status="DISABLED")
    world.clock.at(100)
    world.change(job_id, status="ENABLED")
    world.materialise(job_id, 102)
    assert world.seconds(job_id, "scheduled") == [101, 102]


def test_a_change_while_firings_are_materialised_leaves_none_of_the_old(world: JobWorld) -> None:
    """Either order: the change waits for what is being written, or makes it void."""
    job_id = world.job()
    row = world.job_row(job_id)
    until = START + 20 * SECOND
    times = list(jobs.schedule_of(row).between(START, until))

    def change() -> None:
        world.change(job_id, cron_expr="*/10 * * * * *")

    while_open(
        world.database, lambda tx: firings.materialise(tx, [Plan(row, times, until)]), change
    )
    assert world.seconds(job_id) == []
    world.materialise(job_id, 20)
    assert world.seconds(job_id) == [10, 20]

    row = world.job_row(job_id)

    def materialise() -> int:
        more = [until + 5 * SECOND]
        return world.write(
            lambda tx: firings.materialise(tx, [Plan(row, more, until + 10 * SECOND)])
        )

    made = while_open(
        world.database,
        lambda tx: jobs.change(tx, row, None, {"cron_expr": "*/7 * * * * *"}),
        materialise,
    )
    assert made == 0
    assert world.seconds(job_id) == []


def test_a_change_while_a_firing_is_decided(world: JobWorld) -> None:
    """The decision comes first and its run starts as the job is then, or there is none."""
    job_id = world.job(overlap_action="SKIP", misfire_grace_seconds=60)
    world.clock.at(1)
    world.materialise(job_id, 1)
    firing = world.at(job_id, 1)
    world.clock.at(1.2)

    def change() -> None:
        world.change(job_id, param='{"a":2}')

    def fire() -> FiringDecision | None:
        try:
            return world.write(lambda tx: decisions.fire(tx, {firing.id: job_id}).get(firing.id))
        except RaceLost:
            return None

    while_open(
        world.database, lambda tx: decisions.fire(tx, {firing.id: job_id}).get(firing.id), change
    )
    assert (world.at(job_id, 1).status, world.at(job_id, 1).param) == ("pending", '{"a":2}')

    world.clock.at(2)
    world.materialise(job_id, 2)
    firing, row = world.at(job_id, 2), world.job_row(job_id)
    world.clock.at(2.2)
    decided = while_open(world.database, lambda tx: jobs.change(tx, row, None, {}), fire)
    assert decided is None
    assert world.at(job_id, 2).status == "skipped"


# --- materialised --------------------------------------------------------------------------------


def test_two_tickers_materialise_once(world: JobWorld) -> None:
    job_id = world.job()
    row = world.job_row(job_id)
    until = START + 30 * SECOND
    times = list(jobs.schedule_of(row).between(START, until))

    def materialise() -> int:
        return world.write(lambda tx: firings.materialise(tx, [Plan(row, times, until)]))

    assert sorted(at_once(materialise, materialise, materialise)) == [0, 0, 1]
    assert world.seconds(job_id) == list(range(1, 31))
    assert world.job_row(job_id).fired_until == until


def test_a_run_that_started_just_before_a_change_is_not_fired_twice(world: JobWorld) -> None:
    """A keeper whose clock is a little ahead has acquired what is not due by ours."""
    job_id = world.job()
    world.materialise(job_id, 3)
    world.clock.at(0.999)
    early = world.at(job_id, 1)
    world.write(lambda tx: firings.make_pending(tx, [early.id]))
    world.acquire(world.keeper(), [early.id])
    world.change(job_id, description="new")
    assert world.seconds(job_id) == [1]
    assert world.materialise(job_id, 3)
    assert world.seconds(job_id) == [1, 2, 3]
    assert world.at(job_id, 1).status == "running"


def test_jitter_moves_the_run_and_not_the_firing(world: JobWorld) -> None:
    job_id = world.job(cron_expr="0 * * * * *", jitter_seconds=30)
    world.materialise(job_id, 600)
    rows = world.firings(job_id)
    assert [row.scheduled_at for row in rows] == [START + n * 60 * SECOND for n in range(1, 11)]
    late = [row.due_at - not_none(row.scheduled_at) for row in rows]
    assert all(0 <= spread <= 30 * SECOND for spread in late) and len(set(late)) > 5
    world.clock.at(60 + 35)
    assert not missed.is_late(
        world.job_row(job_id), not_none(rows[0].scheduled_at), world.clock.now
    )
    world.clock.at(60 + 41)
    assert missed.is_late(world.job_row(job_id), not_none(rows[0].scheduled_at), world.clock.now)


def test_only_enabled_jobs_of_the_region_are_materialised(world: JobWorld) -> None:
    one = world.job(name="one")
    world.job(name="off", status="DISABLED")
    world.job(name="after", cron_expr="@after 5s", by_clock=False)
    world.write(lambda tx: jobs.create(tx, "elsewhere", STANDARD))
    ahead = world.job(name="ahead")
    world.materialise(ahead, 60)

    def behind(until: float) -> list[int]:
        at = START + round(until * SECOND)
        return [
            row.id
            for row in world.database.read(lambda tx: jobs.read_jobs_behind(tx, REGION, at, 10))
        ]

    assert behind(30) == [one]
    assert behind(61) == [one, ahead]
