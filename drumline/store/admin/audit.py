"""The audit trail: one row per change command, whether it was done or refused."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import delete, insert, select

from drumline.store.rows import AuditRow, read_rows
from drumline.store.tables import audit
from drumline.store.tx import Tx

ACTOR_LIMIT = 128
CHUNK = 500


_WRITE = insert(audit)


class AuditEntry(NamedTuple):
    """One command: who sent it through which front end, and its result."""

    region: str
    actor: str
    front_end: str
    command: str
    subject: str
    arguments: str
    result: str
    request_id: str
    reason: str | None = None


def write(tx: Tx, entry: AuditEntry) -> None:
    values = entry._asdict() | {"actor": entry.actor[:ACTOR_LIMIT], "at": tx.now}
    tx.execute(_WRITE, values)


def listed(
    tx: Tx,
    region: str,
    *,
    since: int | None,
    before: int | None,
    limit: int,
    **same: str | None,
) -> list[AuditRow]:
    """The newest first, a page at a time; `same` are columns that must have these values."""
    statement = select(audit).where(audit.c.region == region)
    for name, value in same.items():
        if value is not None:
            statement = statement.where(audit.c[name] == value)
    if since is not None:
        statement = statement.where(audit.c.at >= since)
    if before is not None:
        statement = statement.where(audit.c.id < before)
    return read_rows(tx, AuditRow, statement.order_by(audit.c.id.desc()).limit(limit))


def prune(tx: Tx, before: int) -> int:
    """Delete a chunk of old entries."""
    ids = list(tx.execute(select(audit.c.id).where(audit.c.at < before).limit(CHUNK)).scalars())
    return tx.execute(delete(audit).where(audit.c.id.in_(ids))).rowcount if ids else 0
