"""Jobs for the store's tests: made, fired and ended by short words, at times that the tests set."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from drumline.domain.jobs.firing import FiringDecision
from drumline.domain.release import FinishedRun, RunEnd, RunOutcome
from drumline.domain.states import TaskState
from drumline.store.database import Database
from drumline.store.job import decisions, firings, jobs, missed
from drumline.store.job.firings import Plan
from drumline.store.rows import JobRow, TaskRow
from drumline.store.tables import job, task
from drumline.store.task import held_tasks
from drumline.store.tx import RaceLost, Tx
from tests.store.world import REGION, SPEC, World, not_none

T = TypeVar("T")

PENDING, QUEUED, SKIPPED = TaskState.PENDING, TaskState.SCHEDULED, TaskState.SKIPPED

SECOND = 1_000_000
START = 1_900_000_800 * SECOND
"""A whole hour: seconds are counted from here."""

STANDARD: dict[str, Any] = {
    "name": "job",
    "cron_expr": "* * * * * *",
    "timezone": "UTC",
    "jitter_seconds": 0,
    "by_clock": True,
    "type": SPEC.type,
    "target_type": SPEC.target_type,
    "param": '{"a":1}',
    "exec_type": "SYNC",
    "timeout_seconds": 15,
    "timeout_ms": 15_000,
    "priority": 5,
    "max_concurrency": 0,
    "concurrency_policy": "QUEUE",
    "overlap_action": "ALLOW",
    "failure_action": "RUN_NEW",
    "catch_up_mode": "NONE",
    "misfire_grace_seconds": 10,
    "status": "ENABLED",
}


class Clock:
    """The database's time, as far as a test says."""

    def __init__(self) -> None:
        self.now = START

    def at(self, seconds: float) -> None:
        self.now = START + round(seconds * SECOND)


@contextmanager
def stopped_clock(database: Database) -> Iterator[Clock]:
    clock = Clock()
    with mock.patch.object(database, "now", lambda: clock.now):
        yield clock


class JobWorld(World):
    """A world with jobs, whose clock stands still until a test moves it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database)
        self.clock = clock

    def write(self, work: Callable[[Tx], T]) -> T:
        return self.database.write(work)

    def job(self, **values: Any) -> int:
        return self.write(lambda tx: jobs.create(tx, REGION, STANDARD | values))

    def job_row(self, job_id: int) -> JobRow:
        (row,) = self.rows(JobRow, job.c.id == job_id)
        return row

    def materialise(self, job_id: int, seconds: float) -> bool:
        """As a ticker does it: the firings up to this second."""
        row, until = self.job_row(job_id), START + round(seconds * SECOND)
        if until <= row.fired_until:
            return False
        times = list(jobs.schedule_of(row).between(row.fired_until, until))
        return bool(self.write(lambda tx: firings.materialise(tx, [Plan(row, times, until)])))

    def firings(self, job_id: int) -> list[TaskRow]:
        """All rows of a job in the order of their times."""
        found = self.rows(TaskRow, task.c.job_id == job_id)
        return sorted(found, key=lambda row: not_none(row.scheduled_at))

    def seconds(self, job_id: int, *statuses: str) -> list[float]:
        """The scheduled seconds of a job's rows in these states."""
        return [
            (not_none(row.scheduled_at) - START) / SECOND
            for row in self.firings(job_id)
            if not statuses or row.status in statuses
        ]

    def at(self, job_id: int, second: float) -> TaskRow:
        """The row of a second."""
        wanted = START + round(second * SECOND)
        (row,) = [row for row in self.firings(job_id) if row.scheduled_at == wanted]
        return row

    def fire(self, job_id: int, second: float) -> FiringDecision:
        """A scheduled firing, decided at its second."""
        self.clock.at(second)
        self.materialise(job_id, second)
        firing = self.at(job_id, second)
        return self.write(lambda tx: decisions.fire(tx, {firing.id: job_id}))[firing.id]

    def try_fire(self, job_id: int, firing_id: int) -> FiringDecision | None:
        """Decide one firing now; None if it has been decided or taken back meanwhile."""
        return self.write(lambda tx: decisions.fire(tx, {firing_id: job_id}).get(firing_id))

    def start(self, job_id: int, second: float, keeper: int) -> None:
        """A worker takes the run of a second."""
        (due,) = self.acquire(keeper, [self.at(job_id, second).id])
        assert due.job_id == job_id

    def finish(self, job_id: int, second: float, keeper: int, end: RunEnd = RunEnd.SUCCESS) -> None:
        """The run of a second, which a worker has, comes to its end."""
        row = self.at(job_id, second)
        ended = over_row(row, end)
        assert self.release(keeper, [ended]) == []

    def run_firing(
        self, job_id: int, second: float, keeper: int, end: RunEnd = RunEnd.SUCCESS
    ) -> FiringDecision:
        """Fire, start and finish, all within the second."""
        decision = self.fire(job_id, second)
        self.start(job_id, second, keeper)
        self.finish(job_id, second, keeper, end)
        return decision

    def settle_missed(self, job_id: int, bound: int = 1000) -> object:
        return self.write(lambda tx: missed.catch_up(tx, job_id, bound))

    def undecided(self, job_id: int) -> list[float]:
        def look(tx: Tx) -> list[float]:
            found = firings.read_undecided(tx, REGION, tx.now, 10_000)
            return [(f.scheduled_at - START) / SECOND for f in found if f.job_id == job_id]

        return self.database.read(look)

    def change(self, job_id: int, version: int | None = None, **values: Any) -> None:
        row = self.job_row(job_id)
        self.write(lambda tx: jobs.change(tx, row, version, values))


def over_row(row: TaskRow, end: RunEnd) -> FinishedRun:
    """The end of a run that a keeper holds."""
    info = "it was" if end in (RunEnd.ERROR, RunEnd.TIMEOUT) else None
    return held_tasks.finished_run(row, RunOutcome(end, info=info), {SPEC.key: SPEC}, "worker")


def until_decided(work: Callable[[], FiringDecision | None]) -> FiringDecision | None:
    """As every decider does it: who loses a race looks again."""
    while True:
        try:
            return work()
        except RaceLost:
            continue


def start_queued(world: JobWorld, job_id: int) -> list[float]:
    """The seconds whose runs are let go."""
    flagged = world.job_row(job_id).queued
    looked = world.database.read(lambda tx: decisions.startable_jobs(tx, REGION))
    ids = world.write(lambda tx: decisions.start_queued(tx, job_id))
    assert bool(looked) == (bool(ids) or (flagged and not world.seconds(job_id, "scheduled")))
    return [(not_none(world.task(i).scheduled_at) - START) / SECOND for i in ids]
