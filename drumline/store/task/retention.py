"""Retention: old finished rows are deleted in small chunks, so that no lock is held for long."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, delete, or_, select, update

from drumline.domain.states import FINISHED, KeeperState, Phase
from drumline.store.node.keepers import owns_tasks
from drumline.store.tables import NOBODY, attempt, batch, keeper, request, result, task
from drumline.store.tx import Tx

CHUNK = 500


def prune_tasks(tx: Tx, region: str, before: int) -> int:
    """Delete a chunk of old finished tasks that belong to no batch."""
    old = (
        task.c.region == region,
        task.c.owner == NOBODY,
        task.c.batch_id.is_(None),
        task.c.status.in_(sorted(FINISHED)),
        task.c.finished_at < before,
    )
    chunk = select(task.c.id).where(*old, task.c.job_id.is_(None) | _surpassed()).limit(CHUNK)
    return _delete_tasks(tx, list(tx.execute(chunk).scalars()), *old)


def _surpassed() -> ColumnElement[bool]:
    """A job's run that its next decision does not read. The decision reads the last started run and
    the newest firing, which may be the skip that followed it."""
    later = task.alias("later")
    since = select(later.c.id).where(
        later.c.job_id == task.c.job_id, later.c.scheduled_at > task.c.scheduled_at
    )
    started = since.where(later.c.started_at > 0).exists()
    ended = since.where(later.c.finished_at > 0).exists()
    return and_(ended, or_(task.c.started_at == 0, started))


def prune_batches(tx: Tx, region: str, before: int) -> int:
    """Delete a chunk of one old finished batch, its row when no task is left.

    An abandoned load is deleted in the same way.
    """
    old = (
        batch.c.region == region,
        (batch.c.finished.is_(True)) | (batch.c.phase == Phase.LOADING),
        batch.c.updated_at < before,
    )
    row = tx.execute(select(batch.c.id).where(*old).order_by(batch.c.id).limit(1)).first()
    if row is None:
        return 0
    # Lock the row and check again: an operator may have started a retry or a rollback.
    same = update(batch).where(batch.c.id == row.id, *old).values(finished=batch.c.finished)
    if tx.execute(same).rowcount != 1:
        return 0
    ids = [
        member.id
        for member in tx.execute(
            select(task.c.id).where(task.c.batch_id == row.id).order_by(task.c.id).limit(CHUNK)
        )
    ]
    if not ids:
        return tx.execute(delete(batch).where(batch.c.id == row.id)).rowcount
    return _delete_tasks(tx, ids)


def prune_requests(tx: Tx, before: int) -> int:
    ids = tx.execute(select(request.c.id).where(request.c.created_at < before).limit(CHUNK))
    return tx.execute(delete(request).where(request.c.id.in_([row.id for row in ids]))).rowcount


def prune_keepers(tx: Tx, region: str, before: int) -> int:
    """Delete keepers that ended long ago and own no tasks."""
    ids = tx.execute(
        select(keeper.c.id)
        .where(
            keeper.c.region == region,
            keeper.c.state != KeeperState.ALIVE,
            keeper.c.beat_at < before,
            ~owns_tasks(region),
        )
        .limit(CHUNK)
    )
    return tx.execute(delete(keeper).where(keeper.c.id.in_([row.id for row in ids]))).rowcount


def _delete_tasks(tx: Tx, ids: list[int], *conditions: ColumnElement[bool]) -> int:
    """Delete those of the tasks that still meet the conditions, with their results and attempts."""
    if not ids:
        return 0
    deleted = tx.execute(delete(task).where(task.c.id.in_(ids), *conditions)).rowcount
    if deleted < len(ids):
        left = set(tx.execute(select(task.c.id).where(task.c.id.in_(ids))).scalars())
        ids = [task_id for task_id in ids if task_id not in left]
    tx.execute(delete(result).where(result.c.task_id.in_(ids)))
    tx.execute(delete(attempt).where(attempt.c.task_id.in_(ids)))
    return deleted
