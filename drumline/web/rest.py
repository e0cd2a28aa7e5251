"""The REST door: a request becomes a command, its answer or its error becomes a response."""

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
from drumline.command_layer import audit_trail, execute
from drumline.command_layer.base import Context
from drumline.web import arguments
from drumline.web.callbacks import callback_token
from drumline.web.routes import PREFIX, TABLE, Endpoint
from drumline.web.token import Guard

DOOR = "rest"

Serve = Callable[[Request], Coroutine[Any, Any, Response]]


def routes(context: Context, guard: Guard) -> list[Route]:
    """One route a path, so that a wrong method is told the right ones."""
    by_path: dict[str, dict[str, Serve]] = defaultdict(dict)
    for endpoint in TABLE:
        by_path[PREFIX + endpoint.path][endpoint.method] = _served(endpoint, context, guard)
    # A fixed word in a path goes before a parameter at the same place.
    ordered = sorted(by_path.items(), key=lambda one: one[0].count("{"))
    return [Route(path, _by_method(ways), methods=[*ways]) for path, ways in ordered]


def _by_method(ways: dict[str, Serve]) -> Serve:
    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await ways[method](request)

    return serve


def _served(endpoint: Endpoint, context: Context, guard: Guard) -> Serve:
    kind = commands.by_name(endpoint.command)
    strict = arguments.takes_body(endpoint, kind)
    here = replace(context, door=DOOR)

    async def serve(request: Request) -> Response:
        request_id = request.headers.get("idempotency-key") or new_request_id()
        more: dict[str, Any] = {}
        if endpoint.role is None:
            more["token"] = callback_token(request)
            by = here
        else:
            holder = await guard.holder(request)
            by = replace(here, actor=holder.name)
            if not holder.role.covers(endpoint.role):
                error = guard.too_small(holder, endpoint.role)
                said = request.path_params
                await run_in_threadpool(audit_trail.note_refused, kind, said, error, request_id, by)
                raise error
        body = await arguments.read_body(request, endpoint) if strict else None
        said = arguments.of_request(request, endpoint, kind, body) | more
        answer = await run_in_threadpool(execute.execute, kind, said, request_id, by, strict=strict)
        return _response(request, endpoint, answer)

    return serve


def _response(request: Request, endpoint: Endpoint, answer: dict[str, Any]) -> Response:
    headers = {}
    if endpoint.created:
        where = endpoint.created.format_map(answer)
        headers["Location"] = PREFIX + quote(where)
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


def _next_page(request: Request, endpoint: Endpoint, place: Any) -> str:
    """The same list from where this page ends: below it if the newest come first."""
    known = arguments.fields(commands.by_name(endpoint.command))
    cursor = "before" if "before" in known else "after"
    pairs = [pair for pair in request.query_params.multi_items() if pair[0] != cursor]
    return f"{quote(request.url.path)}?{urlencode([*pairs, (cursor, place)])}"
