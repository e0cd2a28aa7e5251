"""The outbox of alarms: an event is written by the transaction that makes it true.

Each who wants to hear of it has a row of its own, until it was delivered. A row is taken by
compare-and-set for a while; if whoever took it dies, it is taken again, under the same id.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import delete, func, insert, select, update

from drumline.domain.alarms import AlarmEvent
from drumline.domain.states import Cause, TaskState
from drumline.store.rows import AlarmRow, BatchRow, read_rows
from drumline.store.tables import alarm, job, task
from drumline.store.tx import Tx

if TYPE_CHECKING:
    from drumline.domain.release import FinishedRun, ReleaseDecision

WAITING, GIVEN_UP = "waiting", "given_up"
INFO_KEPT = 1000
ERROR_LIMIT = 500
CHUNK = 500


# --- raised --------------------------------------------------------------------------------------


def raise_event(tx: Tx, event: AlarmEvent, region: str, data: Mapping[str, Any]) -> None:
    """Write one alarm per webhook that subscribes to the event."""
    hooks = tx.hooks.get(event, ())
    if not hooks:
        return
    event_id = f"evt_{secrets.token_hex(12)}"
    when = datetime.fromtimestamp(tx.now // 1_000_000, UTC).isoformat()
    message = {"id": event_id, "type": event, "timestamp": when, "region": region}
    body = msgspec.json.encode({**message, "data": data}).decode()
    common = {
        "region": region,
        "event": event,
        "event_id": event_id,
        "body": body,
        "state": WAITING,
        "tries": 0,
        "due_at": tx.now,
        "version": 0,
        "created_at": tx.now,
    }
    tx.execute(insert(alarm), [common | {"hook": hook} for hook in hooks])


def after_batch(tx: Tx, row: BatchRow, status: str, counts: Mapping[TaskState, int]) -> None:
    """A batch has come to its end."""
    data = {
        "batch_id": row.id,
        "name": row.name,
        "batch_type": row.batch_type,
        "creator": row.creator,
        "status": status,
        "total": row.total,
        "counts": {state: n for state, n in counts.items() if n},
    }
    raise_event(tx, AlarmEvent.BATCH_END, row.region, data)


def after_runs(
    tx: Tx, ended: Sequence[FinishedRun], verdicts: Mapping[int, ReleaseDecision]
) -> None:
    """Runs have ended: those of jobs that failed, and tasks that are quarantined."""
    if not tx.hooks.keys() & {AlarmEvent.JOB_FAILED, AlarmEvent.QUARANTINE}:
        return
    told: dict[int, list[AlarmEvent]] = {}
    for run in ended:
        verdict = verdicts[run.id]
        if verdict.status not in (TaskState.FAIL, TaskState.ROLLBACK_FAIL):
            continue
        if run.is_job_run:
            told.setdefault(run.id, []).append(AlarmEvent.JOB_FAILED)
        if verdict.cause is Cause.QUARANTINED:
            told.setdefault(run.id, []).append(AlarmEvent.QUARANTINE)
    if not told:
        return
    columns = (task.c.id, task.c.region, task.c.type, task.c.batch_id, task.c.job_id, job.c.name)
    rows = tx.execute(
        select(*columns).outerjoin(job, job.c.id == task.c.job_id).where(task.c.id.in_(told))
    )
    for row in rows.all():
        verdict = verdicts[row.id]
        data = {
            "task_id": row.id,
            "type": row.type,
            "batch_id": row.batch_id,
            "job_id": row.job_id,
            "job_name": row.name,
            "status": verdict.status,
            "cause": verdict.cause,
            "info": verdict.info and verdict.info[-INFO_KEPT:],
            "attempt": verdict.attempt,
        }
        for event in told[row.id]:
            raise_event(tx, event, row.region, data)


def after_sweep(tx: Tx, region: str, sweep_id: int, name: str, reason: str | None) -> None:
    """A sweep has stopped before its end."""
    data = {"sweep_id": sweep_id, "name": name, "reason": reason}
    raise_event(tx, AlarmEvent.SWEEP_STOPPED, region, data)


# --- delivered -----------------------------------------------------------------------------------


def read_due(tx: Tx, region: str, hooks: Sequence[str], limit: int) -> list[AlarmRow]:
    """The due alarms of these webhooks, the oldest first, from ix_alarm_due."""
    return read_rows(
        tx,
        AlarmRow,
        select(alarm)
        .where(
            alarm.c.region == region,
            alarm.c.state == WAITING,
            alarm.c.due_at <= tx.now,
            alarm.c.hook.in_(hooks),
        )
        .order_by(alarm.c.due_at)
        .limit(limit),
    )


def lease(tx: Tx, rows: Sequence[AlarmRow], seconds: float) -> list[AlarmRow]:
    """Lease alarms for delivery. Returns those that no other process has leased meanwhile."""
    until = tx.now + int(seconds * 1e6)
    return [row for row in rows if _change(tx, row, 0, due_at=until, tries=row.tries + 1)]


def delivered(tx: Tx, row: AlarmRow) -> bool:
    """Delete a leased alarm after its delivery."""
    ours = (alarm.c.id == row.id, alarm.c.version == row.version + 1)
    return tx.execute(delete(alarm).where(*ours)).rowcount == 1


def put_back(tx: Tx, row: AlarmRow, seconds: float, error: str) -> bool:
    """Make a leased alarm due again after its delivery failed."""
    due_at = tx.now + int(seconds * 1e6)
    return _change(tx, row, 1, due_at=due_at, error=error[:ERROR_LIMIT])


def give_up(tx: Tx, row: AlarmRow, error: str) -> bool:
    """Give up on a leased alarm. The row is kept until retention deletes it."""
    return _change(tx, row, 1, state=GIVEN_UP, error=error[:ERROR_LIMIT])


def _change(tx: Tx, row: AlarmRow, since: int, **values: Any) -> bool:
    """Compare and set. `since`: how often this process has changed the row since it was read."""
    version = row.version + since
    changed = tx.execute(
        update(alarm)
        .where(alarm.c.id == row.id, alarm.c.version == version, alarm.c.state == WAITING)
        .values(version=version + 1, **values)
    )
    return changed.rowcount == 1


def count_given_up(tx: Tx, region: str) -> dict[str, int]:
    """How many alarms were given up, by webhook."""
    rows = tx.execute(
        select(alarm.c.hook, func.count().label("n"))
        .where(alarm.c.region == region, alarm.c.state == GIVEN_UP)
        .group_by(alarm.c.hook)
    )
    return {row.hook: row.n for row in rows}


def prune(tx: Tx, region: str, before: int) -> int:
    """Delete a chunk of old alarms: given up, or of webhooks that are no longer configured."""
    old = select(alarm.c.id).where(alarm.c.region == region, alarm.c.created_at < before)
    ids = list(tx.execute(old.limit(CHUNK)).scalars())
    return tx.execute(delete(alarm).where(alarm.c.id.in_(ids))).rowcount if ids else 0
