"""Paused task types, stored so that pauses survive restarts."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, insert, select

from drumline.store.tables import pause
from drumline.store.tx import Tx

EVERYTHING = "*"


_CURRENT = select(pause.c.type).where(pause.c.region == bindparam("region"))


def current(tx: Tx, region: str) -> list[str]:
    return sorted(tx.execute(_CURRENT, {"region": region}).scalars())


def add(tx: Tx, region: str, type: str) -> None:
    remove(tx, region, type)
    tx.execute(insert(pause).values(region=region, type=type, created_at=tx.now))


def remove(tx: Tx, region: str, type: str) -> bool:
    removed = tx.execute(
        delete(pause).where(pause.c.region == region, pause.c.type == type)
    ).rowcount
    return removed > 0
