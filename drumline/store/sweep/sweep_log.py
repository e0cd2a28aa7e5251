"""Log lines and failed indexes of sweeps, both bounded."""

from __future__ import annotations

from sqlalchemy import delete, select

from drumline.domain.sweeps.states import ACTIVE, ENDED
from drumline.store.rows import FailedItemRow, LogLineRow, read_rows
from drumline.store.tables import sweep, sweep_failed, sweep_log, sweep_partition
from drumline.store.tx import Tx

LINES_KEPT = 10_000
"""Lines of one sweep, the newest."""
CHUNK = 1_000
RECENTLY = 3_600_000_000
"""Microseconds after its last change in which a sweep's lines are still pruned."""


def lines(
    tx: Tx, sweep_id: int, item: int | None, before: int | None, limit: int
) -> list[LogLineRow]:
    """The newest lines first, a page at a time."""
    statement = select(sweep_log).where(sweep_log.c.sweep_id == sweep_id)
    if item is not None:
        statement = statement.where(sweep_log.c.item == item)
    if before is not None:
        statement = statement.where(sweep_log.c.id < before)
    return read_rows(tx, LogLineRow, statement.order_by(sweep_log.c.id.desc()).limit(limit))


def failed(tx: Tx, sweep_id: int, after: int | None, limit: int) -> list[FailedItemRow]:
    """The lowest failed indexes first, a page at a time."""
    statement = select(sweep_failed).where(sweep_failed.c.sweep_id == sweep_id)
    if after is not None:
        statement = statement.where(sweep_failed.c.item > after)
    return read_rows(tx, FailedItemRow, statement.order_by(sweep_failed.c.item).limit(limit))


# --- retention -----------------------------------------------------------------------------------


def prune_lines(tx: Tx, region: str) -> int:
    """Delete a chunk of the lines of one sweep beyond its newest LINES_KEPT."""
    grows = sweep.c.state.in_(sorted(ACTIVE)) | (sweep.c.updated_at > tx.now - RECENTLY)
    for sweep_id in tx.execute(select(sweep.c.id).where(sweep.c.region == region, grows)).scalars():
        this = sweep_log.c.sweep_id == sweep_id
        newest = select(sweep_log.c.id).where(this).order_by(sweep_log.c.id.desc())
        edge = tx.execute(newest.offset(LINES_KEPT).limit(1)).scalar()
        if edge is None:
            continue
        old = select(sweep_log.c.id).where(this, sweep_log.c.id <= edge).order_by(sweep_log.c.id)
        ids = list(tx.execute(old.limit(CHUNK)).scalars())
        return tx.execute(delete(sweep_log).where(sweep_log.c.id.in_(ids))).rowcount
    return 0


def prune_sweeps(tx: Tx, region: str, before: int) -> int:
    """Delete a chunk of the rows of one sweep that ended long ago; its own row last."""
    over = (
        sweep.c.region == region,
        sweep.c.state.in_(sorted(ENDED)),
        sweep.c.finished_at < before,
    )
    sweep_id = tx.execute(select(sweep.c.id).where(*over).order_by(sweep.c.id).limit(1)).scalar()
    if sweep_id is None:
        return 0
    for table, key in ((sweep_log, sweep_log.c.id), (sweep_failed, sweep_failed.c.item)):
        some = select(key).where(table.c.sweep_id == sweep_id).order_by(key).limit(CHUNK)
        if keys := list(tx.execute(some).scalars()):
            chunk = delete(table).where(table.c.sweep_id == sweep_id, key.in_(keys))
            return tx.execute(chunk).rowcount
    tx.execute(delete(sweep_partition).where(sweep_partition.c.sweep_id == sweep_id))
    return tx.execute(delete(sweep).where(sweep.c.id == sweep_id)).rowcount
