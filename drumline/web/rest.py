"""The REST front end: makes a command of a request, and a response of its answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from drumline import commands
from drumline.client.control import new_request_id
from drumline.command_layer import audit_trail
from drumline.command_layer.base import Context
from drumline.command_layer.execute import execute
from drumline.web import request_arguments
from drumline.web.api_tokens import TokenGuard
from drumline.web.callback_token import read_callback_token
from drumline.web.routes import PREFIX, TABLE, Endpoint

FRONT_END = "rest"

Handle = Callable[[Request], Coroutine[Any, Any, Response]]


def routes(context: Context, guard: TokenGuard) -> list[Route]:
    """One route for each path, so that 405 names the methods that the path allows."""
    by_path: dict[str, dict[str, Handle]] = defaultdict(dict)
    for endpoint in TABLE:
        handle = _make_handler(endpoint, context, guard)
        by_path[PREFIX + endpoint.path][endpoint.method] = handle
    # Paths with fewer parameters first: a literal segment wins over a parameter in its place.
    ordered = sorted(by_path.items(), key=lambda item: item[0].count("{"))
    return [Route(path, _by_method(handlers), methods=[*handlers]) for path, handlers in ordered]


def _by_method(handlers: dict[str, Handle]) -> Handle:
    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await handlers[method](request)

    return handle


def _make_handler(endpoint: Endpoint, context: Context, guard: TokenGuard) -> Handle:
    kind = commands.by_name(endpoint.command)
    has_body = request_arguments.takes_body(endpoint, kind)
    rest_context = replace(context, front_end=FRONT_END)

    async def handle(request: Request) -> Response:
        request_id = request.headers.get("idempotency-key") or new_request_id()
        extra: dict[str, Any] = {}
        caller = rest_context
        if endpoint.role is None:
            extra["token"] = read_callback_token(request)
        else:
            holder = await guard.identify(request)
            caller = replace(rest_context, actor=holder.name)
            if not holder.role.covers(endpoint.role):
                error = guard.refuse_role(holder, endpoint.role)
                await run_in_threadpool(
                    audit_trail.record_refusal,
                    kind, request.path_params, error, request_id, caller,
                )  # fmt: skip
                raise error
        body = await request_arguments.read_body(request, endpoint) if has_body else None
        arguments = request_arguments.collect(request, endpoint, kind, body) | extra
        answer = await run_in_threadpool(
            execute, kind, arguments, request_id, caller, strict=has_body
        )
        return _make_response(request, endpoint, answer)

    return handle


def _make_response(request: Request, endpoint: Endpoint, answer: dict[str, Any]) -> Response:
    headers = {}
    if endpoint.created:
        headers["Location"] = PREFIX + quote(endpoint.created.format_map(answer))
    if endpoint.tagged:
        headers["ETag"] = f'"{answer["version"]}"'
    if answer.get("next") is not None and endpoint.method == "GET":
        headers["Link"] = f'<{_next_page(request, endpoint, answer["next"])}>; rel="next"'
    return Response(
        msgspec.json.encode(answer),
        201 if endpoint.created else 200,
        headers,
        media_type="application/json",
    )


def _next_page(request: Request, endpoint: Endpoint, cursor: Any) -> str:
    """The URL of the next page: `before` the cursor, or `after` it in an ascending list."""
    known = request_arguments.fields(commands.by_name(endpoint.command))
    name = "before" if "before" in known else "after"
    pairs = [pair for pair in request.query_params.multi_items() if pair[0] != name]
    return f"{quote(request.url.path)}?{urlencode([*pairs, (name, cursor)])}"
