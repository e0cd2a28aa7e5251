"""The web interface of a node, made of its parts. Errors become answers here, once for all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from drumline.command_layer.base import Context
from drumline.errors import DrumlineError
from drumline.web import metrics, probes, problems, reference, rest
from drumline.web.token import Guard

THREADS = 8
"""Each holds a connection to the database, and the pool has so many."""


def make_app(context: Context) -> Starlette:
    """Everything that is served over HTTP."""
    guard = Guard(context)
    app = Starlette(
        routes=[
            *probes.routes(context),
            *metrics.routes(context, guard),
            *reference.routes(),
            *rest.routes(context, guard),
        ],
        exception_handlers={
            DrumlineError: problems.refused,
            HTTPException: problems.not_served,
            Exception: problems.failed,
        },
        lifespan=partial(_lifespan, context),
    )
    app.router.redirect_slashes = False
    return app


@asynccontextmanager
async def _lifespan(context: Context, app: Starlette) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    if not context.settings.webhooks:
        yield
        return
    # Imported here: 7 MB that a node without webhooks need not hold.
    from drumline.web.webhooks import delivering

    async with delivering(context):
        yield
