"""Task rows: written in bulk, shown, and changed one by one by operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import insert, select, update

from drumline.domain.states import DUE, FINISHED, HELD, Cause, Phase, TaskState, check_transition
from drumline.domain.sweeps.definition import HOOK_TARGET_TYPE, PARTITION_TARGET_TYPE
from drumline.errors import Conflict, NotFound
from drumline.store.batch import batches
from drumline.store.batch.operations import fresh_start
from drumline.store.rows import AttemptRow, StoredRow, TaskRow, columns_of, read_first, read_rows
from drumline.store.tables import (
    ANYONE,
    NOBODY,
    STOP_CANCEL,
    STOP_KILL,
    attempt,
    batch,
    keeper,
    result,
    task,
)
from drumline.store.task.instances import claim
from drumline.store.tx import Tx, new_id

NORMAL_PRIORITY = 5
INSERT_ROWS = 1000


_ADD = insert(task)

# --- written ---------------------------------------------------------------------------------


def new_row(now: int, region: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a submission. Columns that it does not name are NULL or zero."""
    return {
        "region": region,
        "status": TaskState.PENDING,
        "priority": NORMAL_PRIORITY,
        "due_at": now,
        "owner": ANYONE,
        "created_at": now,
        "updated_at": now,
        **values,
    }


def add(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows in bulk, as tuples for the driver: with a dictionary per row SQLAlchemy takes as
    long as the database needs for the write."""
    for start in range(0, len(rows), INSERT_ROWS):
        chunk = rows[start : start + INSERT_ROWS]
        mark = "?" if tx.connection.dialect.positional else "%s"
        statement, names = _insert(mark, frozenset(chain.from_iterable(chunk)))
        tx.connection.exec_driver_sql(statement, [tuple(map(row.get, names)) for row in chunk])


@cache
def _insert(mark: str, names: frozenset[str]) -> tuple[str, list[str]]:
    """The statement that writes these columns, and their order in it."""
    order = [column.name for column in task.c if column.name in names]
    marks = ", ".join([mark] * len(order))
    return f"INSERT INTO task ({', '.join(order)}) VALUES ({marks})", order  # noqa: S608  # ours


def add_to_batch(tx: Tx, batch_id: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write tasks of a batch that is still loading, and raise its counters."""
    add(tx, rows)
    changed = tx.execute(
        update(batch)
        .where(batch.c.id == batch_id, batch.c.phase == "loading")
        .values(
            total=batch.c.total + len(rows),
            n_pending=batch.c.n_pending + len(rows),
            updated_at=tx.now,
        )
    ).rowcount
    if changed != 1:
        raise Conflict(reason=f"batch {batch_id} is no longer being loaded")


def add_one(tx: Tx, row: Mapping[str, Any]) -> int:
    """Write one task and return its id."""
    return new_id(tx.execute(_ADD, row))


# --- shown -----------------------------------------------------------------------------------


class TaskListRow(StoredRow, frozen=True):
    """A task in a list: without its documents."""

    table = task

    id: int
    batch_id: int | None
    job_id: int | None
    type: str
    target_type: str
    target_id: str | None
    target_name: str | None
    instance_id: str | None
    status: TaskState
    cause: Cause | None
    attempt: int
    priority: int
    due_at: int
    started_at: int
    finished_at: int


class TaskDetailRow(TaskRow, frozen=True):
    """A task with its result, and with what is known of the keeper that holds it."""

    owner_name: str | None
    last_heartbeat: int | None
    result: str | None


def get(tx: Tx, task_id: int, region: str | None = None) -> TaskDetailRow:
    """One task; NotFound if the region has none with this id."""
    statement = (
        select(
            task,
            keeper.c.name.label("owner_name"),
            keeper.c.beat_at.label("last_heartbeat"),
            result.c.value.label("result"),
        )
        .outerjoin(keeper, keeper.c.id == task.c.owner)
        .outerjoin(result, result.c.task_id == task.c.id)
        .where(task.c.id == task_id)
    )
    if region is not None:
        statement = statement.where(task.c.region == region)
    row = read_first(tx, TaskDetailRow, statement)
    if row is None:
        raise NotFound(noun="task", id=task_id)
    return row


def attempts(tx: Tx, task_id: int) -> list[AttemptRow]:
    """The attempts of a task that did not succeed, oldest first."""
    return read_rows(
        tx, AttemptRow, select(attempt).where(attempt.c.task_id == task_id).order_by(attempt.c.id)
    )


def listed(
    tx: Tx,
    region: str,
    *,
    batch_id: int | None = None,
    statuses: Iterable[str] = (),
    type: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[TaskListRow]:
    """The newest tasks first, a page at a time, without their documents."""
    statement = select(*_LISTED_COLUMNS).where(task.c.region == region)
    if before is not None:
        statement = statement.where(task.c.id < before)
    if batch_id is not None:
        statement = statement.where(task.c.batch_id == batch_id)
    wanted = sorted(statuses)
    if wanted:
        statement = statement.where(task.c.status.in_(wanted))
    if type is not None:
        statement = statement.where(task.c.type == type)
    return read_rows(tx, TaskListRow, statement.order_by(task.c.id.desc()).limit(limit))


_LISTED_COLUMNS = columns_of(TaskListRow)


def held_of(tx: Tx, region: str, batch_id: int, limit: int) -> list[int]:
    """Tasks of a batch that keepers hold, found among all held tasks, which are few."""
    rows = tx.execute(
        select(task.c.id)
        .where(task.c.region == region, task.c.owner > ANYONE, task.c.batch_id == batch_id)
        .limit(limit)
    )
    return [row.id for row in rows]


# --- steered ---------------------------------------------------------------------------------


def cancel(tx: Tx, task_id: int, region: str, force: bool) -> str:
    """Cancel one task. A waiting task is cancelled at once, a running one is stopped or killed."""
    row = get(tx, task_id, region)
    _require_own(row)
    status = row.status
    if status in HELD:
        stop = STOP_KILL if force else STOP_CANCEL
        _only(tx, row, {"stop": max(row.stop, stop)})
        return "killing" if force else "stopping"
    if status in FINISHED:
        raise Conflict(reason=f"task {task_id} is already {status}")
    _step(tx, row, TaskState.CANCEL, {"finished_at": tx.now, "cause": "cancelled"})
    return "cancel"


def retry(tx: Tx, task_id: int, region: str) -> TaskState:
    """Run a failed task again; a failed rollback rolls back again."""
    row = get(tx, task_id, region)
    _require_own(row)
    status = row.status
    targets = {
        TaskState.FAIL: TaskState.RETRY_PENDING,
        TaskState.ROLLBACK_FAIL: TaskState.ROLLBACK_PENDING,
    }
    if status not in targets:
        raise Conflict(reason=f"task {task_id} is {status}; only failed tasks can be retried")
    if row.batch_id is not None:
        needed = Phase.ROLLBACK if status is TaskState.ROLLBACK_FAIL else Phase.FORWARD
        _require_phase(tx, row, row.batch_id, needed)
    values = dict(fresh_start(tx.now))
    if row.instance_id is not None:
        values["unique_key"] = claim(tx, region, row.type, row.instance_id)
    _step(tx, row, targets[status], values)
    return targets[status]


def _require_phase(tx: Tx, row: TaskRow, batch_id: int, needed: Phase) -> None:
    """Refuse a task whose batch is in another phase: no keeper would acquire it."""
    phase = batches.phases_of(tx, [batch_id])[batch_id]
    if phase is not needed:
        doing = {Phase.CANCEL: "is cancelled", Phase.ROLLBACK: "is rolled back"}.get(phase, phase)
        raise Conflict(
            reason=f"task {row.id} is {row.status} and its batch {batch_id} {doing}: "
            "it cannot be retried"
        )
    tx.require_phase(batch_id, needed)


def reschedule(tx: Tx, task_id: int, region: str, due_at: int | None, priority: int | None) -> None:
    """Move a waiting task to another time or priority."""
    row = get(tx, task_id, region)
    _require_own(row)
    if row.status not in DUE:
        raise Conflict(reason=f"task {task_id} is {row.status}; only waiting tasks can be moved")
    values: dict[str, Any] = {"version": task.c.version + 1}
    if due_at is not None:
        values["due_at"] = due_at
    if priority is not None:
        values["priority"] = priority
    _only(tx, row, values)


def _require_own(row: TaskRow) -> None:
    """Refuse tasks of sweeps: only the sweep's own commands change them."""
    if row.target_type in (PARTITION_TARGET_TYPE, HOOK_TARGET_TYPE):
        raise Conflict(
            reason=f"task {row.id} belongs to sweep {row.target_id}: use `drumline sweep`"
        )


def _step(tx: Tx, row: TaskRow, target: TaskState, values: Mapping[str, Any]) -> None:
    source = row.status
    check_transition(source, target)
    waits = target in DUE
    changes = {
        "status": target,
        "owner": ANYONE if waits else NOBODY,
        "version": task.c.version + 1,
        "unique_key": None,
        "active_job_id": row.job_id if waits else None,
    }
    _only(tx, row, changes | dict(values))
    tx.record_counter_change(row.batch_id, source, target, 1)


def _only(tx: Tx, row: TaskRow, values: Mapping[str, Any]) -> None:
    changed = tx.execute(
        update(task)
        .where(task.c.id == row.id, task.c.version == row.version)
        .values(**values, updated_at=tx.now)
    ).rowcount
    if changed != 1:
        raise Conflict(reason=f"task {row.id} was changed concurrently; read it and try again")
