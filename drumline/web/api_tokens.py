"""Checks API tokens and their roles."""

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

CACHE_SECONDS = 5.0
"""How long a token is not looked up again; a revoked token is refused after this time."""
USE_INTERVAL = 300_000_000
"""Microseconds between two updates of `last_used_at`: one for each request would cost more than the
request."""


class NoToken(DrumlineError):
    """This needs an API token as a bearer token; `drumline up` prints where it is stored."""

    http_status = 401


class WrongToken(DrumlineError):
    """This API token is not known or was revoked."""

    http_status = 401


class RoleTooSmall(DrumlineError):
    """This needs a token with the role {needed}; {name} has the role {role}."""

    http_status = 403


class TokenHolder(NamedTuple):
    """The name and the role of a token."""

    name: str
    role: Role


def bearer_token(request: Request) -> str | None:
    """The bearer token of a request."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if kind.lower() == "bearer" else None


class TokenGuard:
    """Looks tokens up by their hashes, and caches those that are valid."""

    def __init__(self, context: Context) -> None:
        self._database = context.db
        self._cache: dict[str, tuple[TokenHolder, float]] = {}

    async def require(self, request: Request, needed: Role) -> TokenHolder:
        """The holder of a request's token, which must have a role."""
        holder = await self.identify(request)
        if not holder.role.covers(needed):
            raise self.refuse_role(holder, needed)
        return holder

    async def identify(self, request: Request) -> TokenHolder:
        """The holder of a request's token."""
        token = bearer_token(request)
        if token is None:
            raise self._count(NoToken())
        hashed = tokens.hash_of(token)
        holder, looked_up = self._cache.get(hashed, (None, 0.0))
        if holder is None or time.monotonic() - looked_up > CACHE_SECONDS:
            holder = await run_in_threadpool(self._look_up, hashed, holder)
        if holder is None:
            raise self._count(WrongToken())
        return holder

    def refuse_role(self, holder: TokenHolder, needed: Role) -> DrumlineError:
        return self._count(RoleTooSmall(needed=needed, name=holder.name, role=holder.role))

    def _look_up(self, hashed: str, cached: TokenHolder | None) -> TokenHolder | None:
        self._cache.pop(hashed, None)
        try:
            row = self._database.read(lambda tx: tokens.find(tx, hashed), tries=1)
            if row is None or not hmac.compare_digest(row.hash, hashed):
                return None
            if row.last_used_at is None or row.last_used_at < self._database.now() - USE_INTERVAL:
                self._database.write(lambda tx: self._note_use(tx, row.id), tries=1)
        except StoreUnavailable:
            if cached is None:
                raise
            # A holder known before can still read the metrics during a database outage.
            self._cache[hashed] = (cached, time.monotonic())
            return cached
        holder = TokenHolder(row.name, row.role)
        self._cache[hashed] = (holder, time.monotonic())
        return holder

    @staticmethod
    def _note_use(tx: Tx, token_id: int) -> None:
        tokens.note_use(tx, token_id, tx.now - USE_INTERVAL)

    @staticmethod
    def _count(error: DrumlineError) -> DrumlineError:
        metrics.tokens_refused.labels(error.code).inc()
        return error
