"""Batch operations: one change applied to all tasks of a batch, in chunks of one commit each.

The operations open a batch that was loaded in chunks, discard an abandoned load, cancel a batch,
retry its failed tasks or roll it back. The batch row holds the `operation` and, in
`operation_after`, the last task that was processed. So after a crash the batch upkeep continues
it. Of two processes that continue it at once, one loses the compare-and-set on `operation_after`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, case, delete, func, literal, select, update

from drumline.domain.states import (
    DUE,
    BatchOperation,
    BatchState,
    Phase,
    TaskState,
    check_transition,
)
from drumline.errors import NotFound
from drumline.store.batch.batches import get
from drumline.store.database import Database
from drumline.store.rows import BatchRow
from drumline.store.tables import ANYONE, NOBODY, STOP_CANCEL, STOP_KILL, batch, task
from drumline.store.tx import RaceLost, Tx

CHUNK = 5000

S = TaskState


ROLLS_BACK = frozenset({S.SUCCESS, S.FAIL, S.CANCEL, S.PENDING, S.RETRY_PENDING, S.ROLLBACK_FAIL})
"""States that a rollback starts from. ROLLBACK_FAIL is left by a rollback that was cancelled."""


_CAPTURED = task.c.before_update.is_not(None)
"""The task's target was captured before the change, so a rollback can restore it."""


def run_operation(database: Database, batch_id: int, seconds: float = math.inf) -> None:
    """Run the operation of a batch, if it has one, for at most so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if not database.write(lambda tx: _run_chunk(tx, batch_id)):
                return
        except RaceLost:
            continue  # another process runs the same operation: continue from its progress
        except NotFound:
            return  # the batch has been discarded


def _run_chunk(tx: Tx, batch_id: int) -> bool:
    """Apply the operation to the next chunk of tasks. Returns whether tasks are left.

    The chunk is a range of ids, read from ix_task_batch. The tasks in it are updated in groups of
    one state each, and each group must change as many rows as were counted.
    """
    row = get(tx, batch_id)
    if row.operation is None:
        return False
    if row.operation == BatchOperation.DISCARD:
        return _discard_chunk(tx, batch_id)
    last = tx.execute(
        select(task.c.id)
        .where(task.c.batch_id == batch_id, task.c.id > row.operation_after)
        .order_by(task.c.id)
        .limit(1)
        .offset(CHUNK - 1)
    ).scalar()
    members = [task.c.batch_id == batch_id, task.c.id > row.operation_after]
    if last is not None:
        members.append(task.c.id <= last)
    for status, captured, count in tx.execute(
        select(task.c.status, _CAPTURED, func.count()).where(*members).group_by("status", _CAPTURED)
    ).all():
        target = _target_state(row.operation, row.phase, status, bool(captured))
        if target is not None:
            # Both conditions: the group before this one may have moved into the same state.
            group = (*members, task.c.status == status, _CAPTURED.is_(bool(captured)))
            _move(tx, row, status, target, count, group)
    if row.operation in (BatchOperation.CANCEL, BatchOperation.KILL):
        stop = STOP_KILL if row.operation == BatchOperation.KILL else STOP_CANCEL
        _request_stop(tx, members, stop)
    advanced = tx.execute(
        update(batch)
        .where(
            batch.c.id == batch_id,
            batch.c.operation == row.operation,
            batch.c.operation_after == row.operation_after,
            batch.c.phase_at == row.phase_at,
        )
        .values(
            operation=None if last is None else row.operation,
            operation_after=last or 0,
            updated_at=tx.now,
            finished=False,
        )
    ).rowcount
    if advanced != 1:
        raise RaceLost
    return last is not None


def _discard_chunk(tx: Tx, batch_id: int) -> bool:
    """Delete a chunk of the tasks of a batch that never ran; the batch itself when none is left."""
    chunk = select(task.c.id).where(task.c.batch_id == batch_id).limit(CHUNK)
    ids = tx.execute(chunk).scalars().all()
    if ids:
        tx.execute(delete(task).where(task.c.id.in_(ids)))
        return True
    tx.execute(delete(batch).where(batch.c.id == batch_id))
    return False


def _target_state(operation: BatchOperation, phase: Phase, status: S, captured: bool) -> S | None:
    """The state that the operation gives to a task, or None to leave the task alone."""
    match operation:
        case BatchOperation.DISCARD:
            return None
        case BatchOperation.OPEN:
            return S.PENDING if status is S.PENDING else None
        case BatchOperation.CANCEL | BatchOperation.KILL:
            return S.CANCEL if status in DUE or status is S.WAITING_CALLBACK else None
        case BatchOperation.RETRY:
            # Keepers acquire only tasks of the batch's phase: others would wait forever.
            if phase is Phase.ROLLBACK:
                return S.ROLLBACK_PENDING if status is S.ROLLBACK_FAIL else None
            return S.RETRY_PENDING if status is S.FAIL else None
        case BatchOperation.ROLLBACK:
            if status in ROLLS_BACK and captured:
                return S.ROLLBACK_PENDING
            return S.CANCEL if status in DUE and status is not S.ROLLBACK_PENDING else None


def _move(
    tx: Tx, row: BatchRow, source: S, target: S, count: int, group: Iterable[ColumnElement[bool]]
) -> None:
    """Move all tasks of a group to a state. RaceLost if the group is not what was counted."""
    waits = target in DUE
    values: dict[str, Any] = {
        "status": target,
        "owner": ANYONE if waits else NOBODY,
        "version": task.c.version + 1,
        "updated_at": tx.now,
    }
    if source is not target:
        check_transition(source, target)
        values |= fresh_start(tx.now) if waits else {"finished_at": tx.now, "cause": "cancelled"}
    if target is S.ROLLBACK_PENDING and source is not S.ROLLBACK_FAIL:
        values["due_at"] = _reverse_completion(row)
    changed = tx.execute(update(task).where(*group).values(**values)).rowcount
    if changed != count:
        raise RaceLost
    if source is not target:
        tx.record_counter_change(row.id, source, target, changed)


def fresh_start(now: int) -> Mapping[str, Any]:
    """The columns that an operator's retry or rollback resets."""
    return {"due_at": now, "retry_time": 0, "failures": 0, "deaths": 0, "finished_at": 0}


def _reverse_completion(row: BatchRow) -> ColumnElement[int]:
    """Due times in the past that reverse the order of completion: the last change first."""
    ended = func.coalesce(func.nullif(task.c.finished_at, 0), task.c.updated_at)
    return literal(row.phase_at + row.created_at, BigInteger) - ended


def _request_stop(tx: Tx, members: Iterable[ColumnElement[bool]], stop: int) -> None:
    # A cancel must not replace a kill that the keeper has not read yet.
    held = update(task).where(*members, task.c.owner > ANYONE, task.c.stop < stop)
    tx.execute(held.values(stop=stop))


def open_batch(tx: Tx, row: BatchRow, *, unowned: bool) -> bool:
    """Let a loaded batch run. `unowned`: its tasks were written with owner NOBODY, so an
    operation must open them."""
    return begin_operation(
        tx,
        row,
        BatchOperation.OPEN if unowned else None,
        Phase.FORWARD,
        batch.c.phase == Phase.LOADING,
    )


def discard(tx: Tx, row: BatchRow) -> bool:
    """Discard a batch that is still being loaded."""
    return begin_operation(
        tx, row, BatchOperation.DISCARD, Phase.CANCEL, batch.c.phase == Phase.LOADING
    )


QUIET = (
    batch.c.n_running == 0,
    batch.c.n_rollback_running == 0,
    batch.c.n_waiting_callback == 0,
)
"""No task of a batch runs. A condition of the write, since keepers acquire tasks meanwhile."""


def can_roll_back(tx: Tx, batch_id: int) -> bool:
    """Whether a rollback could restore the target of any task of a batch."""
    captured = select(task.c.id).where(
        task.c.batch_id == batch_id, task.c.before_update.is_not(None)
    )
    return tx.execute(captured.limit(1)).first() is not None


def begin_operation(
    tx: Tx, row: BatchRow, operation: BatchOperation | None, phase: Phase, *conditions: Any
) -> bool:
    """Write an operation into a batch row. False if the row has changed since it was read, or does
    not meet the conditions."""
    changed = tx.execute(
        update(batch)
        .where(batch.c.id == row.id, batch.c.version == row.version, *conditions)
        .values(
            phase=phase,
            status=case(
                (batch.c.status == BatchState.LOADING, BatchState.PENDING), else_=batch.c.status
            ),
            operation=operation,
            operation_after=0,
            finished=False,
            version=row.version + 1,
            phase_at=tx.now,
            updated_at=tx.now,
        )
    ).rowcount
    return changed == 1
