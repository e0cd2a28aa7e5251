"""The OpenAPI document, made of the table of routes and of the commands' own structs."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import msgspec

from drumline import commands
from drumline.command_layer.base import REQUEST_ID_LIMIT, Command, QueryCommand
from drumline.web import arguments
from drumline.web.answers import ANSWERS
from drumline.web.problems import MEDIA_TYPE
from drumline.web.routes import PREFIX, TABLE, Endpoint

REF = "#/components/schemas/{name}"
PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "What is wrong (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "The kind of error; a name behind a URN."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One sentence that says what is wrong."},
        "field": {"type": "string", "description": "The field that is wrong, if one is."},
        "index": {"type": "integer", "description": "Its position in a list of targets."},
    },
}
ALWAYS = (401, 403, 404, 409, 422, 503)
WITH_BODY = (400, 413, 415)
_COMMAND_LINE = re.compile(r"^`[^`]+`: ")


@cache
def document() -> dict[str, Any]:
    """All of it."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {"Problem": PROBLEM}
    for endpoint in TABLE:
        operation = _operation(endpoint, schemas)
        paths.setdefault(PREFIX + endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Drumline",
            "version": version("drumline"),
            "description": "A durable job scheduler: batches, tasks, jobs and sweeps.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "api_token": {"type": "http", "scheme": "bearer"},
                "callback_token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The run's own token, as its target was given it.",
                },
            },
        },
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    kind = commands.by_name(endpoint.command)
    properties, required = _properties(kind, schemas)
    in_path = re.findall(r"{(\w+)}", endpoint.path)
    parameters = [_parameter("path", name, properties.pop(name), True) for name in in_path]
    has_body = arguments.takes_body(endpoint, kind)
    if not has_body:
        parameters += [
            _parameter("query", name, _without_null(schema), name in required)
            for name, schema in properties.items()
        ]
    if not issubclass(kind, QueryCommand):
        parameters.append(_parameter("header", "Idempotency-Key", IDEMPOTENCY_KEY, False))
    if "version" in properties:
        parameters.append(_parameter("header", "If-Match", IF_MATCH, False))
    head, _, rest = documentation(kind).partition("\n\n")
    words = [textwrap.dedent(rest).strip()]
    words.append(f"Needs the role `{endpoint.role}`." if endpoint.role else "")
    operation: dict[str, Any] = {
        "operationId": endpoint.method.lower() + re.sub("[^a-z]+", "_", endpoint.path).rstrip("_"),
        "tags": [endpoint.path.split("/")[1]],
        "summary": " ".join(head.split()),
        "description": "\n\n".join(filter(None, words)),
        "security": [{"api_token" if endpoint.role else "callback_token": []}],
        "parameters": parameters,
        "responses": _responses(endpoint, has_body, schemas),
    }
    if has_body:
        operation["requestBody"] = _body(endpoint, properties, required, in_path)
    return operation


IDEMPOTENCY_KEY = {
    "type": "string",
    "minLength": 1,
    "maxLength": REQUEST_ID_LIMIT,
    "description": "Sent again under the same key, it is done once and answered the same.",
}
IF_MATCH = {
    "type": "string",
    "pattern": '^"[1-9][0-9]{0,17}"$',
    "description": "The ETag that was read: if it is another by now, nothing is changed.",
}


def _parameter(place: str, name: str, schema: dict[str, Any], required: bool) -> dict[str, Any]:
    shown = {key: value for key, value in schema.items() if key != "description"}
    words = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": place, "required": required, "schema": shown, **words}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """In a URL, what is not there is left out."""
    options = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    if not options:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **(options[0] if len(options) == 1 else {"anyOf": options})}


def _body(
    endpoint: Endpoint, properties: dict[str, Any], required: list[str], in_path: list[str]
) -> dict[str, Any]:
    if endpoint.body:
        schema = properties[endpoint.body]
        needed = True
    else:
        names = endpoint.names
        must = [names.get(name, name) for name in required if name not in in_path]
        schema = {
            "type": "object",
            "properties": {names.get(name, name): one for name, one in properties.items()},
            "additionalProperties": False,
            **({"required": must} if must else {}),
        }
        needed = bool(must)
    return {"required": needed, "content": {"application/json": {"schema": schema}}}


def _answer(command: str, schemas: dict[str, Any]) -> dict[str, Any]:
    if command not in ANSWERS:
        return {"type": "object"}
    (reference,), components = msgspec.json.schema_components([ANSWERS[command]], ref_template=REF)
    schemas |= components
    return reference


def _responses(endpoint: Endpoint, has_body: bool, schemas: dict[str, Any]) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if endpoint.created:
        headers["Location"] = {"schema": {"type": "string"}}
    if endpoint.tagged:
        headers["ETag"] = {"schema": {"type": "string"}}
    done: dict[str, Any] = {
        "description": "It was created." if endpoint.created else "Done.",
        "content": {"application/json": {"schema": _answer(endpoint.command, schemas)}},
        **({"headers": headers} if headers else {}),
    }
    wrong = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}},
        }
        for status in sorted((*ALWAYS, *(WITH_BODY if has_body else ())))
    }
    return {"201" if endpoint.created else "200": done, **wrong}


def _properties(
    kind: type[Command], schemas: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """A command's fields as JSON schemas, and which of them must be there."""
    (reference,), components = msgspec.json.schema_components([kind], ref_template=REF)
    whole = components.pop(reference["$ref"].rpartition("/")[2])
    schemas |= components
    words = field_words(kind)
    properties: dict[str, dict[str, Any]] = whole["properties"]
    for name, field in arguments.fields(kind).items():
        if field.name in words:
            properties[name] = {**properties[name], "description": words[field.name]}
    return properties, list(whole.get("required", ()))


def documentation(kind: type[Command]) -> str:
    """A command in words: its own docstring, or its file's."""
    words = kind.__doc__ or inspect.getmodule(kind).__doc__ or ""
    words = _COMMAND_LINE.sub("", inspect.cleandoc(words))
    return words[:1].upper() + words[1:]


def field_words(kind: type[Command]) -> dict[str, str]:
    """What stands below the fields of a struct and of those it inherits from."""
    words: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if issubclass(parent, Command):
            body = ast.parse(textwrap.dedent(inspect.getsource(parent))).body[0]
            words |= _words_below(body)
    return words


def _words_below(body: ast.stmt) -> dict[str, str]:
    words = {}
    lines = body.body if isinstance(body, ast.ClassDef) else []
    for field, below in pairwise(lines):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                words[name] = " ".join(text.split())
    return words
