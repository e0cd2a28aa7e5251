"""API tokens with their names and roles. Only their hashes are stored.

A token is 256 random bits, so guessing it from its SHA-256 is hopeless and a slow hash is not
needed.
"""

from __future__ import annotations

import hashlib
import secrets

from sqlalchemy import insert, or_, select, update

from drumline.domain.roles import Role
from drumline.errors import Conflict, NotFound
from drumline.store.rows import TokenRow, read_first, read_rows
from drumline.store.tables import token
from drumline.store.tx import Tx


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def create(tx: Tx, name: str, role: Role, hashed: str) -> None:
    """Create a token. Conflict if a token that is not revoked has the name."""
    if tx.execute(select(token.c.id).where(token.c.live_name == name)).first():
        raise Conflict(field="name", reason=f"there is already a token called {name!r}")
    tx.execute(
        insert(token).values(name=name, live_name=name, role=role, hash=hashed, created_at=tx.now)
    )


def ensure(tx: Tx, name: str, hashed: str) -> None:
    """Create the node's own admin token. If its file was replaced, the previous one is revoked."""
    if tx.execute(select(token.c.id).where(token.c.hash == hashed)).first() is None:
        _revoke(tx, name)
        create(tx, name, Role.ADMIN, hashed)


def revoke(tx: Tx, name: str) -> None:
    if not _revoke(tx, name):
        raise NotFound(noun="token", id=name)


def _revoke(tx: Tx, name: str) -> int:
    gone = update(token).where(token.c.live_name == name)
    return tx.execute(gone.values(live_name=None, revoked_at=tx.now)).rowcount


def find(tx: Tx, hashed: str) -> TokenRow | None:
    """The token of this hash, unless it is revoked."""
    return read_first(
        tx, TokenRow, select(token).where(token.c.hash == hashed, token.c.revoked_at.is_(None))
    )


def note_use(tx: Tx, token_id: int, unless_since: int) -> None:
    """Record that a token was used, at most once per interval."""
    old = or_(token.c.last_used_at.is_(None), token.c.last_used_at < unless_since)
    tx.execute(update(token).where(token.c.id == token_id, old).values(last_used_at=tx.now))


def listed(tx: Tx, before: int | None, limit: int) -> list[TokenRow]:
    """The newest first, revoked ones too."""
    statement = select(token).order_by(token.c.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(token.c.id < before)
    return read_rows(tx, TokenRow, statement)
