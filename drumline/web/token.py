"""Who may ask: a bearer token, its name and its role."""

from __future__ import annotations

import hmac
import time
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from drumline.command_layer.base import Context
from drumline.domain.roles import Role
from drumline.errors import DrumlineError, StoreUnavailable
from drumline.store.admin import tokens
from drumline.store.tx import Tx
from drumline.telemetry import metrics

FRESH_SECONDS = 5.0
"""So long a token that was looked up is believed: so soon a revoked one is refused everywhere."""
USE_NOTED = 300_000_000
"""`last_used_at` is right to so many microseconds; a write for each request would cost more than
the request."""


class NoToken(DrumlineError):
    """This needs an API token as a bearer token; `drumline up` says where it is kept."""

    http_status = 401


class WrongToken(DrumlineError):
    """This API token is not known, or it was revoked."""

    http_status = 401


class RoleTooSmall(DrumlineError):
    """This needs a token with the role {needed}; {name} has the role {role}."""

    http_status = 403


class Holder(NamedTuple):
    """Whose token it is."""

    name: str
    role: Role


def given(request: Request) -> str | None:
    """The bearer token of a request."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if kind.lower() == "bearer" else None


class Guard:
    """Knows tokens by their hashes, and remembers those that were good a moment ago."""

    def __init__(self, context: Context) -> None:
        self._database = context.db
        self._known: dict[str, tuple[Holder, float]] = {}

    async def require(self, request: Request, needed: Role) -> Holder:
        """The holder of the token of a request, if he may do what needs this role."""
        holder = await self.holder(request)
        if not holder.role.covers(needed):
            raise self.too_small(holder, needed)
        return holder

    async def holder(self, request: Request) -> Holder:
        """Whose token a request shows."""
        token = given(request)
        if token is None:
            raise self._counted(NoToken())
        hashed = tokens.hash_of(token)
        holder, looked_up = self._known.get(hashed, (None, 0.0))
        if holder is None or time.monotonic() - looked_up > FRESH_SECONDS:
            holder = await run_in_threadpool(self._look_up, hashed, holder)
        if holder is None:
            raise self._counted(WrongToken())
        return holder

    def too_small(self, holder: Holder, needed: Role) -> DrumlineError:
        return self._counted(RoleTooSmall(needed=needed, name=holder.name, role=holder.role))

    def _look_up(self, hashed: str, before: Holder | None) -> Holder | None:
        self._known.pop(hashed, None)
        try:
            row = self._database.read(lambda tx: tokens.find(tx, hashed), tries=1)
            if row is None or not hmac.compare_digest(row.hash, hashed):
                return None
            if row.last_used_at is None or row.last_used_at < self._database.now() - USE_NOTED:
                self._database.write(lambda tx: self._note_use(tx, row.id), tries=1)
        except StoreUnavailable:
            if before is None:
                raise
            # Whoever was let in keeps seeing the metrics of a node whose database is away.
            self._known[hashed] = (before, time.monotonic())
            return before
        holder = Holder(row.name, Role(row.role))
        self._known[hashed] = (holder, time.monotonic())
        return holder

    @staticmethod
    def _note_use(tx: Tx, token_id: int) -> None:
        tokens.note_use(tx, token_id, tx.now - USE_NOTED)

    @staticmethod
    def _counted(error: DrumlineError) -> DrumlineError:
        metrics.tokens_refused.labels(error.code).inc()
        return error
