"""A request's arguments: its path, its query or its body, as a command's fields."""

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
    """A command's fields by their names on the wire."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def takes_body(endpoint: Endpoint, kind: type[Command]) -> bool:
    """Changes have a body; what is deleted is named by its path."""
    return not issubclass(kind, QueryCommand) and endpoint.method != "DELETE"


async def read_body(request: Request, endpoint: Endpoint) -> Any:
    """The body's JSON; nothing is an empty object."""
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
        raise BadBody(reason="it broke off") from None
    if not data:
        return {}
    found = request.headers.get("content-type", "")
    if not _JSON.fullmatch(found):
        raise NotJson(found=found or "of no type")
    try:
        document = msgspec.json.decode(data)
        msgspec.msgpack.encode(document)  # as it travels between processes
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadBody(reason=f"it is not JSON: {error}") from None
    except OverflowError:
        raise BadBody(reason="a number in it does not fit into 64 bits") from None
    return document


def of_request(
    request: Request, endpoint: Endpoint, kind: type[Command], body: Any
) -> dict[str, Any]:
    """All that was said, under the names that the command has for it."""
    known = fields(kind)
    said = _from_path(request, known)
    if endpoint.body:
        more: Mapping[str, Any] = {endpoint.body: body}
    elif takes_body(endpoint, kind):
        more = _from_body(body, endpoint)
    else:
        more = _from_query(request, known)
    if takes_body(endpoint, kind) and request.query_params:
        raise WrongUse(
            field=next(iter(request.query_params)),
            reason="this takes no parameters in the URL, it takes a body",
        )
    for name in more:
        if name in said:
            raise WrongUse(field=name, reason="the path says that already")
    said |= more
    tag = request.headers.get("if-match")
    if tag is not None and "version" in known:
        said["version"] = _version(tag, said.get("version"))
    return said


def _from_path(request: Request, known: Mapping[str, msgspec.structs.FieldInfo]) -> dict[str, Any]:
    said = {}
    for name, text in request.path_params.items():
        try:
            said[name] = msgspec.convert(text, known[name].type, strict=False)
        except msgspec.ValidationError as error:
            raise WrongUse(field=name, reason=invalid_field(error)["reason"]) from None
    return said


def _from_body(body: Any, endpoint: Endpoint) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise WrongUse(reason="the body must be a JSON object")
    meant = {name: name for name in body}
    for name, here in endpoint.names.items():
        if name in body:
            raise WrongUse(field=name, reason=f"it is called {here} here")
        meant[here] = name
    return {meant[name]: value for name, value in body.items()}


def _from_query(request: Request, known: Mapping[str, msgspec.structs.FieldInfo]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if name in known and is_list(known[name].type):
            said[name] = values
        elif len(values) > 1:
            raise WrongUse(field=name, reason=f"it is there {len(values)} times")
        else:
            said[name] = values[0]
    return said


def is_list(kind: Any) -> bool:
    found = msgspec.inspect.type_info(kind)
    return isinstance(found, msgspec.inspect.VarTupleType)


def _version(tag: str, said: Any) -> int | None:
    """The version that an If-Match asks for; `*` is any."""
    found = _TAG.fullmatch(tag.strip())
    if tag.strip() == "*":
        version = None
    elif found is None:
        raise WrongUse(
            field="version", reason=f'If-Match is a version in quotes, as in "3"; not {tag}'
        )
    else:
        version = int(found[1])
    if said is not None and said != version:
        raise WrongUse(field="version", reason="If-Match says another one than the body")
    return version
