"""Batch rows, their counters, and the status that results from the counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, update

from drumline.domain.states import (
    BATCH_FINISHED,
    FINISHED,
    BatchState,
    Phase,
    TaskState,
    aggregate_batch_state,
)
from drumline.domain.task import BatchInfo
from drumline.errors import NotFound
from drumline.store.admin import alarms
from drumline.store.rows import BatchRow, read_first, read_rows
from drumline.store.tables import batch, count_column, task
from drumline.store.tx import Tx, new_id


class PhaseChanged(Exception):
    """A batch is not in the phase that a transaction requires."""

    def __init__(self, batch_id: int) -> None:
        super().__init__(batch_id)
        self.batch_id = batch_id


def apply_counter_changes(tx: Tx) -> None:
    """Write the counter changes of a transaction. PhaseChanged if a batch is not in the phase that
    the transaction requires."""
    for batch_id in sorted(tx.counter_changes):
        changes = {
            count_column(state): batch.c[count_column(state)] + n
            for state, n in tx.counter_changes[batch_id].items()
            if n
        }
        statement = update(batch).where(batch.c.id == batch_id)
        phases = tx.required_phases.get(batch_id)
        if phases is not None:
            if len(phases) > 1:
                raise PhaseChanged(batch_id)  # it cannot be in both
            statement = statement.where(batch.c.phase.in_(phases))
        if tx.execute(statement.values(**changes, finished=False)).rowcount != 1:
            raise PhaseChanged(batch_id)
    tx.counter_changes.clear()


def create(tx: Tx, values: Mapping[str, Any]) -> int:
    """Create a batch whose tasks are still to be loaded."""
    inserted = tx.execute(
        insert(batch).values(
            **values,
            status=BatchState.LOADING,
            phase=Phase.LOADING,
            finished=False,
            operation=None,
            operation_after=0,
            total=0,
            version=0,
            created_at=tx.now,
            updated_at=tx.now,
            phase_at=tx.now,
        )
    )
    return new_id(inserted)


def get(tx: Tx, batch_id: int, region: str | None = None) -> BatchRow:
    """One batch; NotFound if the region has none with this id."""
    statement = select(batch).where(batch.c.id == batch_id)
    if region is not None:
        statement = statement.where(batch.c.region == region)
    row = read_first(tx, BatchRow, statement)
    if row is None:
        raise NotFound(noun="batch", id=batch_id)
    return row


def listed(
    tx: Tx, region: str, status: str | None, before: int | None, limit: int
) -> list[BatchRow]:
    """The newest batches first, a page at a time."""
    statement = select(batch).where(batch.c.region == region)
    if status is not None:
        statement = statement.where(batch.c.status == status)
    if before is not None:
        statement = statement.where(batch.c.id < before)
    return read_rows(tx, BatchRow, statement.order_by(batch.c.id.desc()).limit(limit))


def unfinished(tx: Tx, region: str, after: int, limit: int) -> list[BatchRow]:
    """The next page of unfinished batches after an id, from ix_batch_unfinished."""
    return read_rows(
        tx,
        BatchRow,
        select(batch)
        .where(batch.c.region == region, batch.c.finished.is_(False), batch.c.id > after)
        .order_by(batch.c.id)
        .limit(limit),
    )


def read_infos(tx: Tx, ids: Sequence[int]) -> dict[int, BatchInfo]:
    """The parts of these batches that handlers are shown."""
    rows = read_rows(tx, BatchRow, select(batch).where(batch.c.id.in_(ids)))
    return {
        row.id: BatchInfo(
            id=row.id,
            name=row.name,
            batch_type=row.batch_type,
            target_type=row.target_type,
            creator=row.creator,
            cmdb_service=row.cmdb_service,
            env=row.env,
            region=row.region,
            az=row.az,
            extra_info=None if row.extra_info is None else msgspec.json.decode(row.extra_info),
        )
        for row in rows
    }


def phases_of(tx: Tx, ids: Sequence[int]) -> dict[int, Phase]:
    rows = tx.execute(select(batch.c.id, batch.c.phase).where(batch.c.id.in_(ids)))
    return {row.id: row.phase for row in rows}


def counts(row: BatchRow) -> dict[TaskState, int]:
    """The counters of a batch's row."""
    return {state: getattr(row, count_column(state)) for state in TaskState}


def current_status(row: BatchRow) -> BatchState:
    """The status that follows from the counters, the phase and the operation."""
    if row.operation is not None and row.phase == Phase.ROLLBACK:
        return BatchState.ROLLBACK_RUNNING
    if row.operation is not None and row.phase == Phase.FORWARD:
        return BatchState.RUNNING
    state = aggregate_batch_state(counts(row), row.phase)
    untouched = row.status == BatchState.PENDING and row.n_pending == row.total
    return BatchState.PENDING if untouched and state is BatchState.RUNNING else state


def is_miscounted(row: BatchRow) -> bool:
    """Whether the counters contradict each other."""
    found = counts(row).values()
    return sum(found) != row.total or min(found) < 0


def update_status(tx: Tx, row: BatchRow) -> BatchState | None:
    """Write the status that follows from the counters. None if the row has changed since it was
    read: read it again."""
    state = current_status(row)
    over = (
        row.operation is None
        and state in BATCH_FINISHED
        and not any(n for state, n in counts(row).items() if state not in FINISHED)
    )
    same = [batch.c[count_column(s)] == n for s, n in counts(row).items()]
    changed = tx.execute(
        update(batch)
        .where(batch.c.id == row.id, batch.c.version == row.version, *same)
        .values(status=state, finished=over, version=row.version + 1, updated_at=tx.now)
    ).rowcount
    if changed == 1 and over and not row.finished:
        alarms.after_batch(tx, row, state, counts(row))
    return state if changed == 1 else None


def recount(tx: Tx, batch_id: int) -> dict[TaskState, int]:
    """Count the tasks of a batch and write its counters.

    The batch row is locked first: a transaction that moves tasks at the same time waits for the
    lock and then adds its changes to the counters written here.
    """
    tx.execute(update(batch).where(batch.c.id == batch_id).values(version=batch.c.version + 1))
    rows = tx.execute(
        select(task.c.status, func.count())
        .where(task.c.batch_id == batch_id)
        .group_by(task.c.status)
    )
    found: dict[TaskState, int] = dict.fromkeys(TaskState, 0)
    found.update({TaskState(status): n for status, n in rows})
    tx.execute(
        update(batch)
        .where(batch.c.id == batch_id)
        .values(
            {count_column(state): n for state, n in found.items()}
            | {"total": sum(found.values()), "finished": False}
        )
    )
    return found
