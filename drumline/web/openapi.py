"""The OpenAPI document, derived from the route table and from the structs of the commands."""

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
from drumline.command_layer.answers import answer_type
from drumline.command_layer.base import REQUEST_ID_LIMIT, Command, QueryCommand
from drumline.web import request_arguments
from drumline.web.problems import MEDIA_TYPE
from drumline.web.routes import PREFIX, TABLE, Endpoint

REF = "#/components/schemas/{name}"
PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "An error (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "The class of the error, as a URN."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, in one sentence."},
        "field": {"type": "string", "description": "The field that is wrong, if there is one."},
        "index": {"type": "integer", "description": "Its position in a list of targets."},
    },
}
ERRORS = (401, 403, 404, 409, 422, 503)
BODY_ERRORS = (400, 413, 415)
IDEMPOTENCY_KEY = {
    "type": "string",
    "minLength": 1,
    "maxLength": REQUEST_ID_LIMIT,
    "description": "A request repeated with the same key is executed once and answered the same.",
}
IF_MATCH = {
    "type": "string",
    "pattern": '^"[1-9][0-9]{0,17}"$',
    "description": "The ETag that was read; if it has changed, the request is refused.",
}
_COMMAND_LINE = re.compile(r"^`[^`]+`: ")


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {"Problem": PROBLEM}
    for endpoint in TABLE:
        operation = _describe_operation(endpoint, schemas)
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
                    "description": "The token of the run, which was sent to its target.",
                },
            },
        },
    }


def _describe_operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    kind = commands.by_name(endpoint.command)
    properties, required = _argument_schemas(kind, schemas)
    in_path = re.findall(r"{(\w+)}", endpoint.path)
    parameters = [_describe_parameter("path", name, properties.pop(name), True) for name in in_path]
    has_body = request_arguments.takes_body(endpoint, kind)
    if not has_body:
        parameters += [
            _describe_parameter("query", name, _without_null(schema), name in required)
            for name, schema in properties.items()
        ]
    if not issubclass(kind, QueryCommand):
        parameters.append(_describe_parameter("header", "Idempotency-Key", IDEMPOTENCY_KEY, False))
    if "version" in properties:
        parameters.append(_describe_parameter("header", "If-Match", IF_MATCH, False))
    summary, _, details = documentation(kind).partition("\n\n")
    role = f"Requires the role `{endpoint.role}`." if endpoint.role else ""
    operation: dict[str, Any] = {
        "operationId": endpoint.method.lower() + re.sub("[^a-z]+", "_", endpoint.path).rstrip("_"),
        "tags": [endpoint.path.split("/")[1]],
        "summary": " ".join(summary.split()),
        "description": "\n\n".join(filter(None, (textwrap.dedent(details).strip(), role))),
        "security": [{"api_token" if endpoint.role else "callback_token": []}],
        "parameters": parameters,
        "responses": _describe_responses(endpoint, kind, has_body, schemas),
    }
    if has_body:
        operation["requestBody"] = _describe_body(endpoint, properties, required, in_path)
    return operation


def _describe_parameter(
    place: str, name: str, schema: dict[str, Any], required: bool
) -> dict[str, Any]:
    plain = {key: value for key, value in schema.items() if key != "description"}
    description = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": place, "required": required, "schema": plain, **description}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a query parameter: a URL cannot contain null, only omit the parameter."""
    options = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    if not options:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **(options[0] if len(options) == 1 else {"anyOf": options})}


def _describe_body(
    endpoint: Endpoint, properties: dict[str, Any], required: list[str], in_path: list[str]
) -> dict[str, Any]:
    if endpoint.body:
        schema = properties[endpoint.body]
        is_required = True
    else:
        names = endpoint.names
        members = [names.get(name, name) for name in required if name not in in_path]
        schema = {
            "type": "object",
            "properties": {names.get(name, name): one for name, one in properties.items()},
            "additionalProperties": False,
            **({"required": members} if members else {}),
        }
        is_required = bool(members)
    return {"required": is_required, "content": {"application/json": {"schema": schema}}}


def _describe_responses(
    endpoint: Endpoint, kind: type[Command], has_body: bool, schemas: dict[str, Any]
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if endpoint.created:
        headers["Location"] = {"schema": {"type": "string"}}
    if endpoint.tagged:
        headers["ETag"] = {"schema": {"type": "string"}}
    done: dict[str, Any] = {
        "description": "Created." if endpoint.created else "Done.",
        "content": {"application/json": {"schema": _answer_schema(kind, schemas)}},
        **({"headers": headers} if headers else {}),
    }
    errors = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}},
        }
        for status in sorted((*ERRORS, *(BODY_ERRORS if has_body else ())))
    }
    return {"201" if endpoint.created else "200": done, **errors}


# --- the schemas of structs ----------------------------------------------------------------------


def _answer_schema(kind: type[Command], schemas: dict[str, Any]) -> dict[str, Any]:
    """A reference to the schema of a command's answer, which is added to `schemas`."""
    answer = answer_type(kind)
    (reference,), components = msgspec.json.schema_components([answer], ref_template=REF)
    for struct in _structs_within(answer):
        _add_descriptions(struct, components[struct.__name__]["properties"])
    schemas |= components
    return reference


def _structs_within(answer: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
    """The struct of an answer and the structs in its fields."""
    found: set[type[msgspec.Struct]] = set()
    remaining: list[Any] = [msgspec.inspect.type_info(answer)]
    while remaining:
        info = remaining.pop()
        match info:
            case msgspec.inspect.StructType(cls=cls, fields=fields):
                found.add(cls)
                remaining += [field.type for field in fields]
            case msgspec.inspect.ListType(item_type=item):
                remaining.append(item)
            case msgspec.inspect.UnionType(types=types):
                remaining += types
    return found


def _argument_schemas(
    kind: type[Command], schemas: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The schemas of a command's fields by name, and the names of those that are required."""
    (reference,), components = msgspec.json.schema_components([kind], ref_template=REF)
    schema = components.pop(reference["$ref"].rpartition("/")[2])
    schemas |= components
    properties: dict[str, dict[str, Any]] = schema["properties"]
    _add_descriptions(kind, properties)
    return properties, list(schema.get("required", ()))


def documentation(kind: type[Command]) -> str:
    """The docstring of a command, or of its module if it has none."""
    text = kind.__doc__ or inspect.getmodule(kind).__doc__ or ""
    text = _COMMAND_LINE.sub("", inspect.cleandoc(text))
    return text[:1].upper() + text[1:]


def _add_descriptions(struct: type[msgspec.Struct], properties: dict[str, dict[str, Any]]) -> None:
    """Describe properties by the docstrings under the struct's fields."""
    texts = _field_docstrings(struct)
    for field in msgspec.structs.fields(struct):
        if field.name in texts:
            name = field.encode_name
            properties[name] = {**properties[name], "description": texts[field.name]}


def _field_docstrings(struct: type[msgspec.Struct]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for parent in reversed(struct.__mro__):
        if issubclass(parent, msgspec.Struct) and parent is not msgspec.Struct:
            statement = ast.parse(textwrap.dedent(inspect.getsource(parent))).body[0]
            texts |= _docstrings_in(statement)
    return texts


def _docstrings_in(statement: ast.stmt) -> dict[str, str]:
    texts = {}
    body = statement.body if isinstance(statement, ast.ClassDef) else []
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split())
    return texts
