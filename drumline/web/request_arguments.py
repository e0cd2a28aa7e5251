"""Collects the arguments of a command from the path, the query and the body of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from drumline.command_layer.base import Command, QueryCommand
from drumline.command_layer.fields import invalid_field
from drumline.errors import WrongUse
from drumline.web.problems import BadBody, BodyTooLarge, NotJson
from drumline.web.routes import Endpoint

_JSON = re.compile(r"application/(json|[\w.+-]+\+json)\s*(;.*)?", re.IGNORECASE)
_TAG = re.compile(r'"(\d{1,19})"')


def fields(kind: type[Command]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a command by their names in JSON."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def takes_body(endpoint: Endpoint, kind: type[Command]) -> bool:
    """Whether the arguments are in the body: of a change, unless it is a DELETE."""
    return not issubclass(kind, QueryCommand) and endpoint.method != "DELETE"


async def read_body(request: Request, endpoint: Endpoint) -> Any:
    """Decode the JSON body; an empty body is an empty object."""
    limit = endpoint.body_limit
    if int(request.headers.get("content-length") or 0) > limit:
        raise BodyTooLarge(limit=limit)
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > limit:
                raise BodyTooLarge(limit=limit)
    except ClientDisconnect:
        raise BadBody(reason="the client disconnected") from None
    if not data:
        return {}
    content_type = request.headers.get("content-type", "")
    if not _JSON.fullmatch(content_type):
        raise NotJson(found=content_type or "missing")
    try:
        document = msgspec.json.decode(data)
        msgspec.msgpack.encode(document)  # as it is sent between processes
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadBody(reason=f"it is not JSON: {error}") from None
    except OverflowError:
        raise BadBody(reason="a number in it does not fit into 64 bits") from None
    return document


def collect(request: Request, endpoint: Endpoint, kind: type[Command], body: Any) -> dict[str, Any]:
    """The arguments of a request, under the names that the command has for them."""
    known = fields(kind)
    arguments = _from_path(request, known)
    if endpoint.body:
        others: Mapping[str, Any] = {endpoint.body: body}
    elif takes_body(endpoint, kind):
        others = _from_body(body, endpoint)
    else:
        others = _from_query(request, known)
    if takes_body(endpoint, kind) and request.query_params:
        raise WrongUse(
            field=next(iter(request.query_params)),
            reason="give it in the body; this endpoint has no query parameters",
        )
    for name in others:
        if name in arguments:
            raise WrongUse(field=name, reason="it is given by the path")
    arguments |= others
    tag = request.headers.get("if-match")
    if tag is not None and "version" in known:
        arguments["version"] = _parse_if_match(tag, arguments.get("version"))
    return arguments


def _from_path(request: Request, known: Mapping[str, msgspec.structs.FieldInfo]) -> dict[str, Any]:
    arguments = {}
    for name, text in request.path_params.items():
        try:
            arguments[name] = msgspec.convert(text, known[name].type, strict=False)
        except msgspec.ValidationError as error:
            raise WrongUse(field=name, reason=invalid_field(error)["reason"]) from None
    return arguments


def _from_body(body: Any, endpoint: Endpoint) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise WrongUse(reason="the body must be a JSON object")
    fields_by_member = {name: name for name in body}
    for field, member in endpoint.names.items():
        if field in body:
            raise WrongUse(field=field, reason=f"it is called {member} here")
        fields_by_member[member] = field
    return {fields_by_member[name]: value for name, value in body.items()}


def _from_query(request: Request, known: Mapping[str, msgspec.structs.FieldInfo]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if name in known and _is_list(known[name].type):
            arguments[name] = values
        elif len(values) > 1:
            raise WrongUse(field=name, reason=f"it is given {len(values)} times")
        else:
            arguments[name] = values[0]
    return arguments


def _is_list(kind: Any) -> bool:
    return isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.VarTupleType)


def _parse_if_match(tag: str, in_body: Any) -> int | None:
    """The version that an If-Match header requires; None for `*`, which is any version."""
    match = _TAG.fullmatch(tag.strip())
    if tag.strip() == "*":
        version = None
    elif match is None:
        raise WrongUse(
            field="version", reason=f'If-Match must be a version in quotes, such as "3"; not {tag}'
        )
    else:
        version = int(match[1])
    if in_body is not None and in_body != version:
        raise WrongUse(field="version", reason="If-Match differs from the version in the body")
    return version
