"""Errors as responses: problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from drumline.errors import DrumlineError

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
URN = "urn:drumline:error:"
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="drumline"'}


class BadBody(DrumlineError):
    """The body cannot be read: {reason}"""

    http_status = 400


class BodyTooLarge(DrumlineError):
    """The body has more than {limit} bytes: split the request."""

    http_status = 413


class NotJson(DrumlineError):
    """The body must be JSON, with Content-Type: application/json; the type is {found}."""

    http_status = 415


def describe_error(request: Request, error: Exception) -> JSONResponse:
    """The response to a DrumlineError."""
    if not isinstance(error, DrumlineError):
        return describe_failure(request, error)
    members = {name: value for name, value in error.details.items() if name in ("field", "index")}
    headers = CHALLENGE if error.http_status == HTTPStatus.UNAUTHORIZED else None
    return problem(error.http_status, URN + error.code, str(error), members, headers)


def describe_http_error(request: Request, error: Exception) -> JSONResponse:
    """The response to a path that does not exist or does not allow the method."""
    if not isinstance(error, HTTPException):
        return describe_failure(request, error)
    detail = f"{request.method} {request.url.path} is not served"
    allowed = (error.headers or {}).get("Allow")
    if allowed:
        detail += f"; this path takes {allowed}"
    return problem(error.status_code, "about:blank", detail, {}, error.headers)


def describe_failure(request: Request, error: Exception) -> JSONResponse:
    """The response to any other error. It has no details: a traceback may hold secrets."""
    log.error("Request failed", action="request_failed", path=request.url.path, exc_info=error)
    return problem(500, "about:blank", "an internal error; see the log", {})


def problem(
    status: int,
    kind: str,
    detail: str,
    members: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    title = HTTPStatus(status).phrase
    document = {"type": kind, "title": title, "status": status, "detail": detail, **members}
    return JSONResponse(document, status, headers, media_type=MEDIA_TYPE)
