"""`/api/openapi.json`, and the same as a page at `/api/docs`, which loads no other files."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from drumline.web import openapi

PAGE = "/api/docs"
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --link: #2869c9 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { margin-bottom: 0 } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
code, pre { font: 13px/1.5 ui-monospace, monospace }
a { color: var(--link) } nav a { margin-right: 1rem }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0 }
summary { cursor: pointer; padding: .45rem .75rem; display: flex; gap: .75rem; flex-wrap: wrap }
summary b { font: 600 12px/1.9 ui-monospace, monospace; width: 4rem }
summary span { color: GrayText; margin-left: auto; text-align: right }
details > div { padding: 0 .75rem .75rem; border-top: 1px solid var(--line) }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--soft) }
.get { color: #2869c9 } .post { color: #1c8a46 } .delete { color: #c23b32 }
.patch, .put { color: #a86a00 }
"""
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'",
    "X-Content-Type-Options": "nosniff",
}


def routes() -> list[Route]:
    def as_json(request: Request) -> Response:
        return Response(msgspec.json.encode(openapi.document()), media_type="application/json")

    def as_page(request: Request) -> Response:
        return Response(page(), headers=HEADERS, media_type="text/html")

    def redirect(request: Request) -> Response:
        return RedirectResponse(PAGE)

    return [Route("/", redirect), Route("/api/openapi.json", as_json), Route(PAGE, as_page)]


@cache
def page() -> str:
    """The document as one HTML page."""
    document = openapi.document()
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, ways in document["paths"].items():
        for method, operation in ways.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    nav = " ".join(f'<a href="#{escape(tag)}">{escape(tag)}</a>' for tag in by_tag)
    parts = "".join(
        f'<h2 id="{escape(tag)}">{escape(tag)}</h2>{"".join(operations)}'
        for tag, operations in by_tag.items()
    )
    schemas = "".join(
        f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code>'
        f"<span>{escape(schema.get('description', ''))}</span></summary>"
        f"<div>{_members(schema) if 'properties' in schema else _type(schema)}</div></details>"
        for name, schema in document["components"]["schemas"].items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{info['title']} API</title><style>{STYLE}</style></head><body>"
        f"<h1>{info['title']} API</h1><p>{escape(info['description'])} Version {info['version']}; "
        'for programs: <a href="openapi.json">openapi.json</a>.</p>'
        "<p>Send <code>Authorization: Bearer TOKEN</code> with each request. Errors are "
        "<code>application/problem+json</code>.</p>"
        f"<nav>{nav} <a href='#schemas'>schemas</a></nav>{parts}"
        f'<h2 id="schemas">schemas</h2>{schemas}</body></html>'
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(_parameter(one) for one in operation["parameters"])
    parts = [_prose(operation["description"])]
    if rows:
        parts.append(f"<h4>Parameters</h4><table>{rows}</table>")
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        parts.append(f"<h4>Body</h4>{_members(schema)}")
    responses = ", ".join(_response(*item) for item in operation["responses"].items())
    parts.append(f"<h4>Responses</h4><p>{responses}</p>")
    return (
        f'<details id="{operation["operationId"]}"><summary>'
        f'<b class="{method}">{method.upper()}</b><code>{escape(path)}</code>'
        f"<span>{_inline(operation['summary'])}</span></summary><div>{''.join(parts)}</div></details>"
    )


def _response(status: str, response: dict[str, Any]) -> str:
    (content,) = response["content"].values()
    kind = f": {_type(content['schema'])}" if status.startswith("2") else ""
    return f"{status} {escape(response['description'].rstrip('.'))}{kind}"


def _parameter(one: dict[str, Any]) -> str:
    place = f"{one['in']}{', required' if one['required'] else ''}"
    return _row(one["name"], _type(one["schema"]), place, one.get("description", ""))


def _members(schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return f"<p>{_type(schema)}</p>"
    required = schema.get("required", ())
    rows = "".join(
        _row(name, _type(one), "required" if name in required else "", one.get("description", ""))
        for name, one in schema["properties"].items()
    )
    return f"<table>{rows}</table>"


def _row(name: str, kind: str, place: str, words: str) -> str:
    return (
        f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{escape(place)}</td>"
        f"<td>{_inline(words)}</td></tr>"
    )


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words, as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        words = " or ".join(_type(one) for one in schema["anyOf"])
    elif "enum" in schema:
        words = ", ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    elif schema.get("type") == "array":
        words = f"list of {_type(schema['items'])}" if schema.get("items") else "list"
    else:
        words = escape(str(schema.get("type", "any JSON")))
    bounds = [
        f"{sign}{schema[key]}"
        for key, sign in (("minimum", "≥ "), ("maximum", "≤ "), ("maxLength", "up to "))
        if key in schema
    ]
    if schema.get("default") not in (None, [], {}):
        bounds.append(f"default {escape(str(schema['default']))}")
    return f"{words} <small>{', '.join(bounds)}</small>" if bounds else words


def _prose(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in text.split("\n\n") if part)


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
