"""What is kept of a call: the request as sent, the answer in part, and how it failed."""

from __future__ import annotations

import time

import msgspec

from drumline.domain.states import Cause
from drumline.errors import DrumlineError
from drumline.handlers.base import HandlerFailed
from drumline.handlers.http.answer import retry_after
from drumline.handlers.http.retry import CallOutcome


class SentRequest(msgspec.Struct, frozen=True):
    """The request as it was sent, without its secrets."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None
    truncated: bool


class Response(msgspec.Struct, frozen=True):
    """What is kept of the answer."""

    headers: dict[str, str]
    body: str
    truncated: bool
    """There was more of the body than is kept, or than was read."""


class HttpResult(msgspec.Struct, frozen=True):
    """A call's result, and as JSON the document that the run keeps."""

    outcome: CallOutcome
    status_code: int | None
    """None: there was no answer, or none that could be read."""
    latency_ms: float
    """From the start of the connection, if a new one was needed, to the end of the answer."""
    request: SentRequest
    response: Response | None
    error: str | None = None


class HttpCallFailed(DrumlineError, HandlerFailed):
    """{method} {url}: {reason}"""

    def __init__(self, result: HttpResult, *, final: bool) -> None:
        self.result = result
        self.final = final
        """The retry policy does not want another try after this outcome."""
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
