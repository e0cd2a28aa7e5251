"""Keeper rows. A keeper raises its counter as a heartbeat; the reaper declares silent ones dead."""

from __future__ import annotations

from sqlalchemy import BindParameter, ColumnElement, bindparam, func, insert, select, update

from drumline.domain.states import KeeperState
from drumline.errors import Conflict
from drumline.store.rows import KeeperRow, read_rows
from drumline.store.tables import keeper, task
from drumline.store.tx import Tx, new_id


class KeeperDead(Conflict):
    """Keeper {id} has been declared dead: its tasks belong to others now."""


def register(tx: Tx, *, name: str, region: str, node: str, pid: int, pid_started: int) -> int:
    """Register a new incarnation. Its id is larger than all earlier ones."""
    inserted = tx.execute(
        insert(keeper).values(
            name=name,
            region=region,
            node=node,
            pid=pid,
            pid_started=pid_started,
            state=KeeperState.ALIVE,
            beat=0,
            beat_at=tx.now,
            started_at=tx.now,
        )
    )
    return new_id(inserted)


_TOUCH = (
    update(keeper)
    .where(keeper.c.id == bindparam("keeper_id"), keeper.c.state == KeeperState.ALIVE)
    .values(beat=keeper.c.beat + 1, beat_at=bindparam("now"))
)


def record_heartbeat(tx: Tx, keeper_id: int) -> None:
    """Raise the counter. KeeperDead if this incarnation has ended.

    The row stays locked until the commit. So the reaper, when it declares the keeper dead, waits
    for an acquire in progress and gives its tasks back too.
    """
    if tx.execute(_TOUCH, {"keeper_id": keeper_id, "now": tx.now}).rowcount != 1:
        raise KeeperDead(id=keeper_id)


def is_alive(tx: Tx, keeper_id: int) -> bool:
    state = tx.execute(select(keeper.c.state).where(keeper.c.id == keeper_id)).scalar()
    return state == KeeperState.ALIVE


def close(tx: Tx, keeper_id: int, state: KeeperState) -> bool:
    """End an incarnation. False if it has already ended."""
    changed = tx.execute(
        update(keeper)
        .where(keeper.c.id == keeper_id, keeper.c.state == KeeperState.ALIVE)
        .values(state=state, beat_at=keeper.c.beat_at)
    ).rowcount
    return changed == 1


def owns_tasks(region: str | BindParameter[str]) -> ColumnElement[bool]:
    """The condition that a keeper owns a task, looked up in ix_task_queue."""
    owned = select(task.c.id).where(task.c.region == region, task.c.owner == keeper.c.id)
    return owned.limit(1).correlate(keeper).exists()


_REGION: BindParameter[str] = bindparam("region")
_HERE = select(keeper).where(keeper.c.region == _REGION)
_ALIVE = _HERE.where(keeper.c.state == KeeperState.ALIVE)
_OWNING = _HERE.where(keeper.c.state != KeeperState.ALIVE, owns_tasks(_REGION))
_NOTHING = update(keeper).where(keeper.c.id == 0).values(beat=0)


def read_alive(tx: Tx, region: str) -> list[KeeperRow]:
    return read_rows(tx, KeeperRow, _ALIVE, {"region": region})


def read_ended_owners(tx: Tx, region: str) -> list[KeeperRow]:
    """Ended incarnations that still own tasks."""
    return read_rows(tx, KeeperRow, _OWNING, {"region": region})


def check_writable(tx: Tx) -> None:
    """Write without a change. The reaper does so first: while it cannot write, keepers cannot send
    heartbeats either, and it must not declare them dead."""
    tx.execute(_NOTHING)


def count_alive_elsewhere(tx: Tx, region: str, node: str) -> int:
    """How many keepers on other nodes are alive and could take over."""
    return int(
        tx.execute(
            select(func.count())
            .select_from(keeper)
            .where(
                keeper.c.region == region,
                keeper.c.state == KeeperState.ALIVE,
                keeper.c.node != node,
            )
        ).scalar_one()
    )
