"""Spreads: one change carried over all tasks of a batch, in chunks, each its own commit.

Opening a batch that was loaded in pieces, discarding a load that was given up, cancelling a batch,
retrying what failed, rolling it back: each is written into the batch first (`spread`, and
`spread_after`, the last task that was dealt with) and then carried out. Whoever finds a batch with
a spread goes on with it, so that a crash in the middle only delays it; two at once are told apart
by the compare-and-set on `spread_after`.
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
from drumline.store.tables import ANYONE, NOBODY, batch, task
from drumline.store.task.runs import STOP_CANCEL, STOP_KILL, RaceLost
from drumline.store.tx import Tx

CHUNK = 5000

S = TaskState


ROLLS_BACK = frozenset({S.SUCCESS, S.FAIL, S.CANCEL, S.PENDING, S.RETRY_PENDING, S.ROLLBACK_FAIL})
"""The last is left by a rollback that was cancelled and is begun again."""


_CAPTURED = task.c.before_update.is_not(None)
"""A rollback could bring this task's target back."""


def run_operation(database: Database, batch_id: int, seconds: float = math.inf) -> None:
    """Finish whatever spread a batch has. Past the seconds the rest is left to whoever is next."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if not database.write(lambda tx: _chunk(tx, batch_id)):
                return
        except RaceLost:
            continue  # another carries it out too; look where it is
        except NotFound:
            return  # discarded, by us or by another


def _chunk(tx: Tx, batch_id: int) -> bool:
    row = get(tx, batch_id)
    if row.spread is None:
        return False
    if row.spread == BatchOperation.DISCARD:
        return _discard(tx, batch_id)
    last = tx.execute(
        select(task.c.id)
        .where(task.c.batch_id == batch_id, task.c.id > row.spread_after)
        .order_by(task.c.id)
        .limit(1)
        .offset(CHUNK - 1)
    ).scalar()
    members = [task.c.batch_id == batch_id, task.c.id > row.spread_after]
    if last is not None:
        members.append(task.c.id <= last)
    for status, captured, count in tx.execute(
        select(task.c.status, _CAPTURED, func.count()).where(*members).group_by("status", _CAPTURED)
    ).all():
        source = S(status)
        target = _target(row.spread, row.phase, source, bool(captured))
        if target is not None:
            # The state alone would not do: another group may just have been moved into it.
            alike = (*members, task.c.status == source, _CAPTURED.is_(bool(captured)))
            _move(tx, row, source, target, count, alike)
    if row.spread in (BatchOperation.CANCEL, BatchOperation.KILL):
        _ask_to_stop(tx, members, STOP_KILL if row.spread == BatchOperation.KILL else STOP_CANCEL)
    moved_on = tx.execute(
        update(batch)
        .where(
            batch.c.id == batch_id,
            batch.c.spread == row.spread,
            batch.c.spread_after == row.spread_after,
            batch.c.phase_at == row.phase_at,
        )
        .values(
            spread=None if last is None else row.spread,
            spread_after=last or 0,
            updated_at=tx.now,
            finished=False,
        )
    ).rowcount
    if moved_on != 1:
        raise RaceLost
    return last is not None


def _discard(tx: Tx, batch_id: int) -> bool:
    """Delete a chunk of a batch that never ran, and the batch with its last task."""
    ids = [
        row.id
        for row in tx.execute(select(task.c.id).where(task.c.batch_id == batch_id).limit(CHUNK))
    ]
    if ids:
        tx.execute(delete(task).where(task.c.id.in_(ids)))
        return True
    tx.execute(delete(batch).where(batch.c.id == batch_id))
    return False


def _target(spread: BatchOperation, phase: Phase, status: S, captured: bool) -> S | None:
    """What the spread makes of a task, or None to leave it as it is."""
    match spread:
        case BatchOperation.DISCARD:
            return None
        case BatchOperation.OPEN:
            return S.PENDING if status is S.PENDING else None
        case BatchOperation.CANCEL | BatchOperation.KILL:
            return S.CANCEL if status in DUE or status is S.WAITING_CALLBACK else None
        case BatchOperation.RETRY:
            # Each in its own phase: a change that is retried during a rollback never starts.
            if phase is Phase.ROLLBACK:
                return S.ROLLBACK_PENDING if status is S.ROLLBACK_FAIL else None
            return S.RETRY_PENDING if status is S.FAIL else None
        case BatchOperation.ROLLBACK:
            if status in ROLLS_BACK and captured:
                return S.ROLLBACK_PENDING
            return S.CANCEL if status in DUE and status is not S.ROLLBACK_PENDING else None


def _move(
    tx: Tx, row: BatchRow, source: S, target: S, count: int, alike: Iterable[ColumnElement[bool]]
) -> None:
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
    changed = tx.execute(update(task).where(*alike).values(**values)).rowcount
    if changed != count:
        raise RaceLost
    if source is not target:
        tx.record_counter_change(row.id, source, target, changed)


def fresh_start(now: int) -> Mapping[str, Any]:
    """What an operator's retry or rollback sets back."""
    return {"due_at": now, "retry_time": 0, "failures": 0, "deaths": 0, "finished_at": 0}


def _reverse_completion(row: BatchRow) -> ColumnElement[int]:
    """Due times in the past, the earlier the later the task ended: last done, first undone."""
    ended = func.coalesce(func.nullif(task.c.finished_at, 0), task.c.updated_at)
    return literal(row.phase_at + row.created_at, BigInteger) - ended


def _ask_to_stop(tx: Tx, members: Iterable[ColumnElement[bool]], stop: int) -> None:
    # Only more than before: a cancel does not take back a kill that no keeper has read yet.
    held = update(task).where(*members, task.c.owner > ANYONE, task.c.stop < stop)
    tx.execute(held.values(stop=stop))


def open_batch(tx: Tx, row: BatchRow, *, spread: bool) -> bool:
    """Let a loaded batch run; with a spread if its tasks were written as nobody's to take."""
    return begin(
        tx,
        row,
        BatchOperation.OPEN if spread else None,
        Phase.FORWARD,
        batch.c.phase == Phase.LOADING,
    )


def discard(tx: Tx, row: BatchRow) -> bool:
    """Take back a batch that is still being loaded."""
    return begin(tx, row, BatchOperation.DISCARD, Phase.CANCEL, batch.c.phase == Phase.LOADING)


QUIET = (
    batch.c.n_running == 0,
    batch.c.n_rollback_running == 0,
    batch.c.n_waiting_callback == 0,
)
"""No task of a batch runs. Part of the write itself: a keeper may acquire one at this moment."""


def can_roll_back(tx: Tx, batch_id: int) -> bool:
    """Is there anything in a batch that a rollback could bring back?"""
    captured = select(task.c.id).where(
        task.c.batch_id == batch_id, task.c.before_update.is_not(None)
    )
    return tx.execute(captured.limit(1)).first() is not None


def begin(
    tx: Tx, row: BatchRow, spread: BatchOperation | None, phase: Phase, *conditions: Any
) -> bool:
    """Write into the batch what is to be carried over its tasks."""
    changed = tx.execute(
        update(batch)
        .where(batch.c.id == row.id, batch.c.version == row.version, *conditions)
        .values(
            phase=phase,
            status=case(
                (batch.c.status == BatchState.LOADING, BatchState.PENDING), else_=batch.c.status
            ),
            spread=spread,
            spread_after=0,
            finished=False,
            version=row.version + 1,
            phase_at=tx.now,
            updated_at=tx.now,
        )
    ).rowcount
    return changed == 1
