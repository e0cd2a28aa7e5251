"""Firing rows: materialised ahead, read when their decision is due, shown.

A firing is a task in state `scheduled`, identified by its job and its scheduled time. Firings of
jobs without a policy are made pending in bulk; the others are decided one by one, see decisions.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, select, union_all, update

from drumline.domain.jobs.firing import FiringKind, needs_decision
from drumline.domain.states import Cause, TaskState
from drumline.store.job import jobs
from drumline.store.rows import JobRow, StoredRow, columns_of, read_first, read_rows
from drumline.store.tables import ANYONE, TICKER, task
from drumline.store.task.scan import PRIORITIES
from drumline.store.task.tasks import add, new_row
from drumline.store.tx import Tx

S = TaskState
LATEST_RUNS = 100


# --- written -------------------------------------------------------------------------------------


def row_for(
    tx: Tx,
    row: JobRow,
    scheduled_at: int,
    due_at: int,
    kind: FiringKind = FiringKind.SCHEDULED,
) -> dict[str, Any]:
    """The row of an undecided firing."""
    values = {
        "job_id": row.id,
        "active_job_id": row.id,
        "scheduled_at": scheduled_at,
        "run_attempt": 1,
        "fired_by": kind,
        "trace_id": secrets.token_hex(16),
        "status": S.SCHEDULED,
        "owner": TICKER,
        "due_at": due_at,
    }
    return new_row(tx.now, row.region, jobs.run_values(row) | values)


class Plan(NamedTuple):
    """The firings of a job to be written. There are no others up to `until`."""

    row: JobRow
    times: Sequence[int]
    until: int


def materialise(tx: Tx, plans: Sequence[Plan]) -> int:
    """Write jobs' firings and move each one's fired_until, in one transaction.

    Jobs that were changed meanwhile, or materialised by another ticker, are left out. Returns the
    number of the others.
    """
    rows: list[dict[str, Any]] = []
    done = 0
    for plan in plans:
        row, times = plan.row, plan.times
        if not jobs.advance(tx, row, plan.until):
            continue
        done += 1
        if times and row.fired_until <= row.changed_at:
            # A run may have started just before the change, by a clock that is slightly ahead.
            there = set(_times_from(tx, row.id, times[0]))
            times = [t for t in times if t not in there]
        schedule = jobs.schedule_of(row)
        rows += [row_for(tx, row, t, schedule.due_at(row.id, t)) for t in times]
    add(tx, rows)
    return done


def _times_from(tx: Tx, job_id: int, first: int) -> Sequence[int]:
    statement = select(task.c.scheduled_at).where(
        task.c.job_id == job_id, task.c.scheduled_at >= first
    )
    return tx.execute(statement).scalars().all()


def plan_after(tx: Tx, row: JobRow) -> bool:
    """Write the next firing of a job that fires some time after its last run has ended."""
    schedule = jobs.schedule_of(row)
    ended = last_end(tx, row.id)
    if ended is None:
        at = schedule.first_after(row.changed_at)
    else:
        at = schedule.next_after(ended)
        at = None if at is None else schedule.first_after(max(at, row.changed_at))
    if at is None:
        return jobs.advance(tx, row, jobs.FOREVER)
    return bool(materialise(tx, [Plan(row, [at], max(at, row.fired_until + 1))]))


def last_end(tx: Tx, job_id: int) -> int | None:
    """When the last run of a job ended, or its last firing was skipped."""
    latest = (
        select(task.c.finished_at)
        .where(task.c.job_id == job_id)
        .order_by(task.c.scheduled_at.desc())
        .limit(LATEST_RUNS)
        .subquery()
    )
    found = tx.execute(select(func.max(latest.c.finished_at))).scalar()
    return int(found) if found else None


# --- found ---------------------------------------------------------------------------------------


class UndecidedFiring(StoredRow, frozen=True):
    """A firing whose decision is still to be made."""

    table = task

    id: int
    job_id: int
    due_at: int
    scheduled_at: int


_UNDECIDED_COLUMNS = columns_of(UndecidedFiring)


def read_undecided(tx: Tx, region: str, until: int, limit: int) -> list[UndecidedFiring]:
    """The firings whose decision is due by this time, earliest first.

    Reads one range of ix_task_queue per priority.
    """
    parts = [
        select(*_UNDECIDED_COLUMNS)
        .where(
            task.c.region == region,
            task.c.owner == TICKER,
            task.c.priority == priority,
            task.c.due_at <= until,
        )
        .order_by(task.c.due_at, task.c.id)
        .limit(limit)
        .subquery()
        for priority in PRIORITIES
    ]
    found = read_rows(tx, UndecidedFiring, union_all(*(select(part) for part in parts)))
    found.sort(key=lambda row: (row.due_at, row.id))
    return found[:limit]


def is_plain(row: JobRow) -> bool:
    """Whether every firing of this job runs without a decision."""
    return not needs_decision(jobs.policies_of(row))


def make_pending(tx: Tx, ids: Sequence[int]) -> int:
    """Make firings of jobs without a policy pending, so that they start at their time."""
    return tx.execute(
        update(task)
        .where(task.c.id.in_(ids), task.c.owner == TICKER, task.c.status == S.SCHEDULED)
        .values(status=S.PENDING, owner=ANYONE, version=task.c.version + 1, updated_at=tx.now)
    ).rowcount


# --- shown ---------------------------------------------------------------------------------------


class LatestRunRow(StoredRow, frozen=True):
    """The latest firing of a job, in short."""

    table = task

    id: int
    status: TaskState
    cause: Cause | None
    scheduled_at: int
    finished_at: int


class JobRunRow(LatestRunRow, frozen=True):
    """A run of a job, or a firing that was skipped."""

    job_id: int
    info: str | None
    due_at: int
    started_at: int
    fired_by: FiringKind
    run_attempt: int | None
    attempt: int
    trace_id: str | None


_LATEST_COLUMNS = columns_of(LatestRunRow)
_RUN_COLUMNS = columns_of(JobRunRow)


def runs_of(
    tx: Tx,
    job_id: int,
    *,
    statuses: Sequence[str] = (),
    since: int | None = None,
    until: int | None = None,
    limit: int = 50,
) -> list[JobRunRow]:
    """A job's runs and skipped firings, the latest first."""
    statement = select(*_RUN_COLUMNS).where(task.c.job_id == job_id)
    if statuses:
        statement = statement.where(task.c.status.in_(sorted(statuses)))
    if since is not None:
        statement = statement.where(task.c.scheduled_at >= since)
    if until is not None:
        statement = statement.where(task.c.scheduled_at <= until)
    return read_rows(tx, JobRunRow, statement.order_by(task.c.scheduled_at.desc()).limit(limit))


def last_runs(tx: Tx, job_ids: Sequence[int]) -> dict[int, LatestRunRow]:
    """The latest firing of each job whose time has come."""
    found: dict[int, LatestRunRow] = {}
    for job_id in job_ids:
        row = read_first(
            tx,
            LatestRunRow,
            select(*_LATEST_COLUMNS)
            .where(task.c.job_id == job_id, task.c.scheduled_at <= tx.now)
            .order_by(task.c.scheduled_at.desc())
            .limit(1),
        )
        if row is not None:
            found[job_id] = row
    return found
