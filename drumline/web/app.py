"""The web application of a node: its routes and its error handlers."""

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
from drumline.web.api_tokens import TokenGuard

THREADS = 8
"""Each thread holds a database connection, and the pool has this many."""


def make_app(context: Context) -> Starlette:
    """The application with all of its routes."""
    guard = TokenGuard(context)
    app = Starlette(
        routes=[
            *probes.routes(context),
            *metrics.routes(context, guard),
            *reference.routes(),
            *rest.routes(context, guard),
        ],
        exception_handlers={
            DrumlineError: problems.describe_error,
            HTTPException: problems.describe_http_error,
            Exception: problems.describe_failure,
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
    # Imported here: it costs 7 MB, which a node without webhooks does not need.
    from drumline.web.webhooks import deliver_in_background

    async with deliver_in_background(context):
        yield
