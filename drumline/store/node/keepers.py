"""Keepers: who is alive. A keeper's counter is its lease; the reaper judges by it."""

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
    """A new incarnation. Its id is larger than that of any before it."""
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
    """Raise the counter, or learn that this incarnation is over.

    The row stays locked until the commit: whoever declares this keeper dead waits for what it is
    just acquiring, and then gives that back too.
    """
    if tx.execute(_TOUCH, {"keeper_id": keeper_id, "now": tx.now}).rowcount != 1:
        raise KeeperDead(id=keeper_id)


def is_alive(tx: Tx, keeper_id: int) -> bool:
    state = tx.execute(select(keeper.c.state).where(keeper.c.id == keeper_id)).scalar()
    return state == KeeperState.ALIVE


def close(tx: Tx, keeper_id: int, state: KeeperState) -> bool:
    """End an incarnation. False if someone has ended it before."""
    changed = tx.execute(
        update(keeper)
        .where(keeper.c.id == keeper_id, keeper.c.state == KeeperState.ALIVE)
        .values(state=state, beat_at=keeper.c.beat_at)
    ).rowcount
    return changed == 1


def owns_tasks(region: str | BindParameter[str]) -> ColumnElement[bool]:
    """Of a keeper's row: a task names it as its owner."""
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
    """Incarnations that are over and still own tasks."""
    return read_rows(tx, KeeperRow, _OWNING, {"region": region})


def check_writable(tx: Tx) -> None:
    """Write something that changes nothing: who cannot, must not judge those who cannot beat."""
    tx.execute(_NOTHING)


def count_alive_elsewhere(tx: Tx, region: str, node: str) -> int:
    """How many keepers on other nodes could take over from this one."""
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
