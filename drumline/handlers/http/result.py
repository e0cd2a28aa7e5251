"""The stored result of a call: the request, part of the response, and the failure."""

from __future__ import annotations

import time

import msgspec

from drumline.domain.states import Cause
from drumline.errors import DrumlineError
from drumline.handlers.base import HandlerFailed
from drumline.handlers.http.response import retry_after
from drumline.handlers.http.retry import CallOutcome


class SentRequest(msgspec.Struct, frozen=True):
    """The request as it was sent, with its secrets masked."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None
    truncated: bool


class Response(msgspec.Struct, frozen=True):
    """The stored part of the response."""

    headers: dict[str, str]
    body: str
    truncated: bool
    """The body was longer than the stored part."""


class HttpResult(msgspec.Struct, frozen=True):
    """The result of a call; as JSON, the result of the run."""

    outcome: CallOutcome
    status_code: int | None
    """None: there was no response, or not a valid one."""
    latency_ms: float
    """From the start of the call, including a new connection, to the end of the response."""
    request: SentRequest
    response: Response | None
    error: str | None = None


class HttpCallFailed(DrumlineError, HandlerFailed):
    """{method} {url}: {reason}"""

    def __init__(self, result: HttpResult, *, final: bool) -> None:
        self.result = result
        self.final = final
        """The retry policy allows no retry after this outcome."""
        self.cause = Cause.TIMEOUT if result.outcome is CallOutcome.TIMEOUT else Cause.ERROR
        request = result.request
        if result.response is not None:
            self.wait = retry_after(result.response.headers, time.time())
        super().__init__(method=request.method, url=request.url, reason=_reason(result))


def _reason(result: HttpResult) -> str:
    after = f"after {result.latency_ms:.0f} ms"
    if result.error is not None:
        answered = "" if result.status_code is None else f"{result.status_code}, then "
        return f"{answered}{result.error} {after}"
    body = "" if result.response is None else " ".join(result.response.body[:500].split())
    return f"{result.status_code} {after}" + (f": {body}" if body else "")
