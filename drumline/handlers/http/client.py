"""The HTTP client: sends one request and returns its result.

Every call ends in an `HttpResult`, except when it is cancelled. All calls of an event loop share
one client and its connections.
"""

from __future__ import annotations

import asyncio
import time
from weakref import WeakSet

from aiohttp import (
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientPayloadError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
)
from yarl import URL

from drumline.domain.jobs.template import SlotValues
from drumline.handlers.http.addresses import AddressRefused, AddressRules
from drumline.handlers.http.connector import CheckedResolver, Lookup, connector, system_lookup
from drumline.handlers.http.limits import (
    READ_LIMIT,
    STORED_ERROR_LIMIT,
    STORED_RESPONSE_BODY_LIMIT,
    cut_headers,
    cut_text,
)
from drumline.handlers.http.prepare import PreparedCall, RenderedRequest
from drumline.handlers.http.response import decode_text, decompress, stored_headers
from drumline.handlers.http.result import HttpResult, Response
from drumline.handlers.http.retry import CallOutcome, outcome_of
from drumline.handlers.http.trace import traceparent
from drumline.masking import SecretValues, mask_named_values

_NO_TIMEOUT = ClientTimeout(total=None, sock_connect=None)
_EXPECT_A_BODY = frozenset({"POST", "PUT", "PATCH"})


class HttpClient:
    """Sends thousands of concurrent requests. Create it within the event loop that uses it."""

    def __init__(
        self,
        rules: AddressRules,
        *,
        keep: int = STORED_RESPONSE_BODY_LIMIT,
        lookup: Lookup = system_lookup,
    ) -> None:
        self._rules = rules
        self._keep = keep
        self._checked: WeakSet[PreparedCall] = WeakSet()
        self._resolver = CheckedResolver(rules, lookup)
        self._session = ClientSession(
            connector=connector(self._resolver),
            cookie_jar=DummyCookieJar(),  # jobs share no cookies
            auto_decompress=False,  # decompressed only as far as it is stored
            timeout=_NO_TIMEOUT,  # each call has its own
            trust_env=False,  # a proxy would bypass the address check
        )
        # aiohttp would repeat GET, PUT and DELETE when a connection breaks. An attempt is one
        # request on the wire; only the retry policy decides about another.
        self._session._retry_connection = False

    async def close(self) -> None:
        await self._session.close()
        await self._resolver.close()

    async def call(
        self, prepared: PreparedCall, values: SlotValues, trace_id: str | None = None
    ) -> HttpResult:
        """Send one request and read its response."""
        sent = prepared.render(values, traceparent(trace_id))
        received = _Received(self._keep)
        error = None
        started = time.perf_counter()
        try:
            if prepared not in self._checked:
                self._rules.check_target(prepared.target)
                self._checked.add(prepared)
            async with asyncio.timeout(prepared.call.timeout):
                await self._exchange(prepared.method, sent, received)
            outcome = outcome_of(received.status_code or 0)
        except AddressRefused as refused:
            outcome, error = CallOutcome.REFUSED, str(refused)
        except (ClientError, OSError) as failure:  # a TimeoutError is an OSError, too
            outcome, error = _explain(failure, received, prepared.call.timeout)
        latency = round((time.perf_counter() - started) * 1000, 3)
        request, secrets = prepared.masked(sent, values)
        if error is not None:
            error, _ = cut_text(secrets.mask(mask_named_values(error)), STORED_ERROR_LIMIT)
        return HttpResult(
            outcome, received.status_code, latency, request, received.stored(secrets), error
        )

    async def _exchange(self, method: str, sent: RenderedRequest, received: _Received) -> None:
        bare = sent.body is None and method in _EXPECT_A_BODY
        async with self._session.request(
            method,
            URL(sent.url, encoded=True),
            headers=sent.headers,
            data=None if sent.body is None else sent.body.encode(),
            allow_redirects=False,
            skip_auto_headers=("Content-Type",) if bare else None,
        ) as response:
            await received.read(response)


class _Received:
    """The part of a response that has arrived, also when the rest does not."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._whole = False
        self.status_code: int | None = None

    async def read(self, response: ClientResponse) -> None:
        self.status_code = response.status
        self._headers = stored_headers(response.headers)
        size = 0
        while chunk := await response.content.readany():
            if size < self._keep:
                self._body += chunk[: self._keep - size]
            size += len(chunk)
            if size > READ_LIMIT:
                response.close()
                break
        self._whole = size <= self._keep

    def stored(self, secrets: SecretValues) -> Response | None:
        """The response to store: decompressed, then masked, then cut."""
        if self.status_code is None:
            return None
        headers = self._headers
        raw, unpacked = decompress(
            bytes(self._body), headers.get("Content-Encoding", ""), self._keep
        )
        whole = unpacked and self._whole
        text = decode_text(raw, headers.get("Content-Type", ""), whole)
        text, cut = cut_text(secrets.mask(mask_named_values(text), cut=not whole), self._keep)
        headers = {name: secrets.mask(value) for name, value in headers.items()}
        if "Location" in headers:
            headers["Location"] = mask_named_values(headers["Location"])
        return Response(cut_headers(headers), text, cut or not whole)


def _explain(failure: Exception, received: _Received, timeout: float) -> tuple[CallOutcome, str]:
    """The outcome of a failed call, and its description for operators."""
    match failure:
        case TimeoutError():
            what = (
                "no response" if received.status_code is None else "the response was not complete"
            )
            return CallOutcome.TIMEOUT, f"{what} within {timeout:g} s"
        case ClientSSLError():
            return CallOutcome.TLS, f"no secure connection: {failure.__cause__ or failure}"
        case ClientConnectorDNSError():
            return CallOutcome.CONNECTION, f"the host name cannot be resolved: {failure.os_error}"
        case ClientConnectorError():
            return CallOutcome.CONNECTION, f"connection failed: {failure.os_error}"
        case ServerDisconnectedError():
            return (
                CallOutcome.CONNECTION,
                "the server closed the connection before it sent a response",
            )
        case ClientPayloadError():
            return CallOutcome.CONNECTION, f"the response was cut off: {failure}"
        case ClientResponseError():
            return CallOutcome.CONNECTION, f"the response is not valid HTTP: {failure.message}"
        case _:
            return CallOutcome.CONNECTION, f"connection lost: {failure}"
