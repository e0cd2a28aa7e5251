"""The writes of a running partition: opened once, then checkpoint after checkpoint.

Each is fenced like every write of a run, and locks its task while it writes. The stored start
never moves back; a checkpoint that comes twice changes nothing the second time.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Select, bindparam, func, insert, select, update

from drumline.domain.states import KeeperState
from drumline.domain.sweeps.partition import Checkpoint, PartitionDirectives, PartitionInfo
from drumline.domain.sweeps.partitioning import share_of_parallel, share_of_rate
from drumline.domain.sweeps.states import SweepState
from drumline.store.database import Database
from drumline.store.rows import PartitionRow, SweepRow, read_first, read_one
from drumline.store.sweep import sweeps
from drumline.store.tables import keeper, sweep, sweep_failed, sweep_log, sweep_partition, task
from drumline.store.tx import Tx

FAILED_KEPT = 10_000
"""Failed indexes that are kept of a partition, the first ones."""


class HeldPartition(msgspec.Struct, frozen=True):
    """The keeper that holds a partition's task, and the fence."""

    keeper_id: int
    task_id: int
    fence: int


def open_partition(database: Database, held: HeldPartition) -> PartitionInfo | None:
    """What a runner needs to continue a partition; None if the keeper has lost its task."""
    return database.write(partial(_open, held=held))


def _open(tx: Tx, held: HeldPartition) -> PartitionInfo | None:
    if not _lock_task(tx, held, progress=False):
        return None
    part = read_one(tx, PartitionRow, _of_task(held.task_id))
    tx.execute(
        update(sweep_partition)
        .where(sweep_partition.c.id == part.id)
        .values(running=True, speed=0.0, updated_at=tx.now)
    )
    row = read_one(tx, SweepRow, select(sweep).where(sweep.c.id == part.sweep_id))
    return PartitionInfo(
        sweep_id=row.id,
        name=row.name,
        number=part.number,
        end=part.end_index,
        start=part.start_index,
        errors=part.errors,
        stuck=_stuck(part),
        extra=row.extra,
        source=sweeps.source_of(row),
        directives=_directives(tx, row, part),
    )


def checkpoint(
    database: Database, held: HeldPartition, flush: Checkpoint
) -> PartitionDirectives | None:
    """Store a checkpoint and return the directives; None if the keeper has lost the task."""
    return database.write(partial(_store, held=held, flush=flush))


def _store(tx: Tx, held: HeldPartition, flush: Checkpoint) -> PartitionDirectives | None:
    part = read_first(tx, PartitionRow, _of_task(held.task_id))
    if part is None or not _lock_task(tx, held, progress=flush.start > part.start_index):
        return None
    part = read_one(tx, PartitionRow, _of_task(held.task_id))  # as it is while its task is locked
    values: dict[str, Any] = {"speed": flush.speed, "updated_at": tx.now}
    if flush.start > part.start_index:
        room = FAILED_KEPT - part.failed_kept
        failed = [item for item in flush.failed if item >= part.start_index][: max(0, room)]
        _keep_failed(tx, part.sweep_id, failed)
        values |= {
            "start_index": flush.start,
            "errors": flush.errors,
            "failed_kept": part.failed_kept + len(failed),
        }
    stuck = {item for item in (*_stuck(part), *flush.stuck) if item >= flush.start}
    values["stuck"] = msgspec.json.encode(sorted(stuck)).decode() if stuck else None
    tx.execute(update(sweep_partition).where(sweep_partition.c.id == part.id).values(**values))
    if flush.log:
        tx.execute(
            insert(sweep_log),
            [
                {"sweep_id": part.sweep_id, "item": line.item, "message": line.message,
                 "created_at": tx.now}
                for line in flush.log
            ],
        )  # fmt: skip
    if flush.extra is not None:
        tx.execute(update(sweep).where(sweep.c.id == part.sweep_id).values(extra=flush.extra))
    row = read_one(tx, SweepRow, select(sweep).where(sweep.c.id == part.sweep_id))
    return _directives(tx, row, part)


def _lock_task(tx: Tx, held: HeldPartition, progress: bool) -> bool:
    """Lock the task by its fence; False if it is lost. Progress resets the count of deaths, since
    the items that may have caused them are done."""
    rest = {"deaths": 0} if progress else {}
    changed = tx.execute(
        update(task)
        .where(task.c.id == held.task_id, task.c.owner == held.keeper_id)
        .where(task.c.fence == held.fence)
        .values(updated_at=tx.now, **rest)
    ).rowcount
    return changed == 1


def _of_task(task_id: int) -> Select[Any]:
    return select(sweep_partition).where(sweep_partition.c.task_id == task_id)


def _stuck(part: PartitionRow) -> tuple[int, ...]:
    return msgspec.json.decode(part.stuck or "[]", type=tuple[int, ...])


def _keep_failed(tx: Tx, sweep_id: int, failed: list[int]) -> None:
    if failed:
        tx.execute(
            insert(sweep_failed),
            [{"sweep_id": sweep_id, "item": item, "created_at": tx.now} for item in failed],
        )


def _directives(tx: Tx, row: SweepRow, part: PartitionRow) -> PartitionDirectives:
    others = tx.execute(
        select(
            func.count().label("parts"),
            func.coalesce(func.sum(sweep_partition.c.running), 0).label("running"),
            func.coalesce(func.sum(sweep_partition.c.errors), 0).label("errors"),
        ).where(sweep_partition.c.sweep_id == row.id, sweep_partition.c.id != part.id)
    ).one()
    partitions = others.parts + 1
    parallel = row.parallel
    if parallel is not None:
        parallel = max(1, share_of_parallel(parallel, partitions, part.number))
    return PartitionDirectives(
        stop=row.state != SweepState.RUNNING,
        rate=share_of_rate(row.rate, int(others.running) + 1),
        parallel=parallel,
        serial=row.parallel in (None, 1) and partitions == 1,
        budget=row.errors,
        errors_at_start=row.errors_at_start,
        other_errors=int(others.errors),
    )


class SweepDemand(NamedTuple):
    """The figures that a node's share of the partitions is computed from."""

    wanted: int = 0
    """Partitions that run or wait to."""
    nodes: int = 0
    """Nodes with an alive keeper."""
    here: int = 0
    """Partitions that keepers of this node hold."""


_WANTED = (
    select(func.count())
    .select_from(sweep_partition)
    .join(sweep, sweep.c.id == sweep_partition.c.sweep_id)
    .where(sweep_partition.c.task_id.is_not(None), sweep.c.region == bindparam("region"))
)


def read_demand(tx: Tx, region: str, node: str) -> SweepDemand:
    wanted = tx.execute(_WANTED, {"region": region}).scalar_one()
    if not wanted:
        return SweepDemand()
    nodes = select(func.count(keeper.c.node.distinct())).where(
        keeper.c.region == region, keeper.c.state == KeeperState.ALIVE
    )
    here = (
        select(func.count())
        .select_from(sweep_partition)
        .join(task, task.c.id == sweep_partition.c.task_id)
        .join(keeper, keeper.c.id == task.c.owner)
        .where(keeper.c.region == region, keeper.c.node == node)
    )
    return SweepDemand(
        int(wanted), int(tx.execute(nodes).scalar_one()), int(tx.execute(here).scalar_one())
    )
