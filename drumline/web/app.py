"""The web interface of a node, made of its parts. Errors become answers here, once for all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from drumline import node
from drumline.commands.base import Context
from drumline.errors import DrumlineError
from drumline.web import metrics, probes

log = structlog.get_logger()

THREADS = 8
"""Each holds a connection to the database, and the pool has so many."""


def make_app(context: Context) -> Starlette:
    """Everything that is served over HTTP."""
    secret = node.read_token(context.settings.run_path)
    return Starlette(
        routes=[*probes.routes(context), *metrics.routes(context, secret)],
        exception_handlers={
            DrumlineError: _refused,
            HTTPException: _not_served,
            Exception: _failed,
        },
        lifespan=_with_few_threads,
    )


@asynccontextmanager
async def _with_few_threads(app: Starlette) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    yield


def _refused(request: Request, error: Exception) -> JSONResponse:
    status = error.http_status if isinstance(error, DrumlineError) else 500
    return _answer(status, type(error).__name__, str(error))


def _not_served(request: Request, error: Exception) -> JSONResponse:
    status, detail = (
        (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
    )
    return _answer(status, "NotServed", f"{request.method} {request.url.path}: {detail}")


def _failed(request: Request, error: Exception) -> JSONResponse:
    """What is not ours is not explained to strangers."""
    log.error("A request failed.", action="request_failed", path=request.url.path, exc_info=error)
    return _answer(500, "DrumlineError", "an internal error; see the log")


def _answer(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": code, "message": message}, status_code=status)
