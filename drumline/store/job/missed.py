"""Missed firings: not decided in time, or not started because no worker was alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, exists, insert, select, update

from drumline.domain.jobs.catch_up import ListedFirings, Misfire, plan_catch_up
from drumline.domain.jobs.firing import FiringKind
from drumline.domain.jobs.schedule import FiringCount, Schedule
from drumline.domain.states import Cause, TaskState
from drumline.store.job import jobs
from drumline.store.job.firings import Plan, materialise, row_for
from drumline.store.rows import JobRow
from drumline.store.tables import ANYONE, NOBODY, TICKER, job, keeper, task
from drumline.store.tx import RaceLost, Tx

S = TaskState
SECOND = 1_000_000


def grace(row: JobRow) -> int:
    """The maximum lateness of a decision, in microseconds. Jitter delays a firing on purpose."""
    return (row.misfire_grace_seconds + row.jitter_seconds) * SECOND


def is_late(row: JobRow, scheduled_at: int, now: int) -> bool:
    """Whether this firing is missed. Firings that follow a completion are never missed."""
    return row.by_clock and scheduled_at < now - grace(row)


def catch_up(tx: Tx, job_id: int, bound: int) -> Misfire | None:
    """Apply a job's catch-up mode to all firings that it has missed up to now.

    Some of them have rows, some were never materialised. Those that are caught up become undecided
    firings; one skipped row stands for all others.
    """
    row = jobs.begin_decision(tx, job_id)
    if row.status != jobs.ENABLED or not row.by_clock:
        return None
    known = tx.execute(
        select(task.c.scheduled_at)
        .where(
            task.c.active_job_id == job_id,
            task.c.owner == TICKER,
            task.c.scheduled_at <= tx.now,
        )
        .order_by(task.c.scheduled_at)
    ).scalars()
    gap = _Gap(ListedFirings(tuple(known)), jobs.schedule_of(row), row.fired_until)
    missed = plan_catch_up(
        gap,
        fired_until=0,
        now=tx.now,
        grace_us=grace(row),
        mode=row.catch_up_mode,
        bound=bound,
    )
    if missed.misfire is not None:
        tx.execute(
            delete(task).where(
                task.c.active_job_id == job_id,
                task.c.owner == TICKER,
                task.c.status == S.SCHEDULED,
                task.c.scheduled_at <= missed.misfire.last,
            )
        )
        tx.execute(insert(task).values(**_missed_row(tx, row, missed.misfire)))
    if row.fired_until < tx.now:
        missing = [t for t in missed.to_fire if t > row.fired_until]
        if not materialise(tx, [Plan(row, missing, tx.now)]):
            raise RaceLost
    return missed.misfire


def _missed_row(tx: Tx, row: JobRow, misfire: Misfire) -> dict[str, Any]:
    return row_for(tx, row, misfire.last, misfire.last) | {
        "status": S.SKIPPED,
        "owner": NOBODY,
        "active_job_id": None,
        "cause": Cause.MISFIRE,
        "info": misfire.reason,
        "finished_at": tx.now,
    }


@dataclass(frozen=True, slots=True)
class _Gap:
    """Firings that have rows, followed by those that were not materialised."""

    known: ListedFirings
    schedule: Schedule
    fired_until: int

    def between(self, start_us: int, end_us: int) -> Iterator[int]:
        yield from self.known.between(start_us, end_us)
        yield from self.schedule.between(max(start_us, self.fired_until), end_us)

    def count_firings(self, start_us: int, end_us: int, keep: int) -> FiringCount:
        older = self.known.count_firings(start_us, end_us, keep)
        newer = self.schedule.count_firings(max(start_us, self.fired_until), end_us, keep)
        newest = (older.newest + newer.newest)[-keep:]
        return FiringCount(older.count + newer.count, older.first or newer.first, newest)


def read_unstarted(tx: Tx, region: str, limit: int) -> list[int]:
    """Pending runs that were not started because no worker was alive until the end of their grace.

    A run that waits behind a backlog while workers are alive is not missed. Manual runs are never
    missed.
    """
    ends = task.c.due_at + job.c.misfire_grace_seconds * SECOND
    worked = exists().where(
        keeper.c.region == region, keeper.c.started_at <= ends, keeper.c.beat_at >= task.c.due_at
    )
    # From the jobs to their few active runs (ix_task_active_job), never through the whole backlog.
    missed = (
        select(task.c.id)
        .join(job, job.c.id == task.c.active_job_id)
        .where(
            job.c.region == region,
            job.c.by_clock.is_(True),
            task.c.scheduled_at < tx.now,
            task.c.status == S.PENDING,
            task.c.owner == ANYONE,
            task.c.attempt == 0,
            task.c.fired_by == FiringKind.SCHEDULED,
            ends < tx.now,
            ~worked,
        )
        .limit(limit)
    )
    return list(tx.execute(missed).scalars())


def make_undecided(tx: Tx, ids: Sequence[int]) -> int:
    """Make pending runs undecided again, so that catch-up treats them as missed firings."""
    return tx.execute(
        update(task)
        .where(
            task.c.id.in_(ids),
            task.c.owner == ANYONE,
            task.c.status == S.PENDING,
            task.c.attempt == 0,
        )
        .values(status=S.SCHEDULED, owner=TICKER, version=task.c.version + 1, updated_at=tx.now)
    ).rowcount
