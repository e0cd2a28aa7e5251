"""Firings as rows: materialised ahead, found when they are to be decided, shown.

A firing is a task in state `scheduled`, known by its job and its scheduled time. Jobs without a
policy have theirs passed on in bulk; the others have them decided one by one, see decisions.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, func, select, union_all, update

from drumline.domain.jobs.firing import FiringKind, needs_decision
from drumline.domain.states import TaskState
from drumline.store.job import jobs
from drumline.store.tables import ANYONE, TICKER, task
from drumline.store.task.scan import PRIORITIES
from drumline.store.task.tasks import add, new_row
from drumline.store.tx import Tx

S = TaskState
LATEST_RUNS = 100


# --- written -------------------------------------------------------------------------------------


def row_for(
    tx: Tx,
    row: Row[Any],
    scheduled_at: int,
    due_at: int,
    kind: FiringKind = FiringKind.SCHEDULED,
) -> dict[str, Any]:
    """A firing of a job, not decided yet."""
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
    """What is to be written of a job's firings, and up to when that is all of them."""

    row: Row[Any]
    times: Sequence[int]
    until: int


def materialise(tx: Tx, plans: Sequence[Plan]) -> int:
    """Write jobs' firings and move each one's fired_until, in one transaction.

    Left out are jobs that were changed meanwhile, or that another ticker has dealt with. Returns
    how many were not.
    """
    rows: list[dict[str, Any]] = []
    done = 0
    for plan in plans:
        row, times = plan.row, plan.times
        if not jobs.advance(tx, row, plan.until):
            continue
        done += 1
        if times and row.fired_until <= row.changed_at:
            # A run may have started a moment before the change, by a clock that is a little ahead.
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


def plan_after(tx: Tx, row: Row[Any]) -> bool:
    """The next firing of a job that fires a while after its last run has ended.

    It is late at most, never missed: the delay is at least so long.
    """
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


def undecided(tx: Tx, region: str, until: int, limit: int) -> list[Row[Any]]:
    """The firings that are to be decided by this time, earliest first."""
    parts = [
        select(task.c.id, task.c.job_id, task.c.due_at, task.c.scheduled_at)
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
    found = list(tx.execute(union_all(*(select(part) for part in parts))))
    found.sort(key=lambda row: (row.due_at, row.id))
    return found[:limit]


def is_plain(row: Row[Any]) -> bool:
    """Does every firing of this job simply run?"""
    return not needs_decision(jobs.policies_of(row))


def pass_on(tx: Tx, ids: Sequence[int]) -> int:
    """Let firings of jobs without a policy run at their time, in bulk, no decision needed."""
    return tx.execute(
        update(task)
        .where(task.c.id.in_(ids), task.c.owner == TICKER, task.c.status == S.SCHEDULED)
        .values(status=S.PENDING, owner=ANYONE, version=task.c.version + 1, updated_at=tx.now)
    ).rowcount


# --- shown ---------------------------------------------------------------------------------------


def runs_of(
    tx: Tx,
    job_id: int,
    *,
    statuses: Sequence[str] = (),
    since: int | None = None,
    until: int | None = None,
    limit: int = 50,
) -> list[Row[Any]]:
    """A job's runs and skipped firings, the latest first."""
    statement = select(*_RUN_COLUMNS).where(task.c.job_id == job_id)
    if statuses:
        statement = statement.where(task.c.status.in_(sorted(statuses)))
    if since is not None:
        statement = statement.where(task.c.scheduled_at >= since)
    if until is not None:
        statement = statement.where(task.c.scheduled_at <= until)
    return list(tx.execute(statement.order_by(task.c.scheduled_at.desc()).limit(limit)))


_RUN_COLUMNS = (
    task.c.id,
    task.c.job_id,
    task.c.status,
    task.c.cause,
    task.c.info,
    task.c.scheduled_at,
    task.c.due_at,
    task.c.started_at,
    task.c.finished_at,
    task.c.fired_by,
    task.c.run_attempt,
    task.c.attempt,
    task.c.trace_id,
)


def last_runs(tx: Tx, job_ids: Sequence[int]) -> dict[int, Row[Any]]:
    """The latest firing of each job that has come to its time."""
    found: dict[int, Row[Any]] = {}
    for job_id in job_ids:
        row = tx.execute(
            select(task.c.id, task.c.status, task.c.cause, task.c.scheduled_at, task.c.finished_at)
            .where(task.c.job_id == job_id, task.c.scheduled_at <= tx.now)
            .order_by(task.c.scheduled_at.desc())
            .limit(1)
        ).first()
        if row is not None:
            found[job_id] = row
    return found
