"""Loopback servers with scripted responses, and a client that calls them."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any

import msgspec
from aiohttp import web

from drumline.domain.jobs.template import SlotValues
from drumline.domain.release import RESULT_LIMIT
from drumline.handlers.http.addresses import AddressRules
from drumline.handlers.http.client import HttpClient
from drumline.handlers.http.prepare import prepare
from drumline.handlers.http.result import HttpResult

TOKEN = "c0ffee" * 8
VALUES: SlotValues = {
    "run_id": 42,
    "job_id": 7,
    "scheduled_time": "2026-01-02T03:04:05Z",
    "attempt": 1,
    "callback_url": "https://d.example/api/v1/callbacks/42",
    "callback_token": TOKEN,
}
TRACE = "0af7651916cd43dd8448eb211c80319c"
LOOPBACK = AddressRules(allow_loopback=True)
TEST_SECONDS = 60.0


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Raw = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test with a time limit."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(TEST_SECONDS):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """A web server that answers every request with this handler."""
    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class RawServer:
    """A TCP server that runs `talk` once for each connection."""

    def __init__(self, talk: Raw) -> None:
        self.talk = talk
        self.connections = 0
        self.disconnected = asyncio.Event()
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(ConnectionError):
                await self.talk(reader, writer)
        finally:
            self.disconnected.set()
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            server.close()


def responding_with(*parts: bytes, then: str = "close") -> RawServer:
    """Read a request, send these bytes, then close, reset, or wait until the client disconnects."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then == "hang":
            await reader.read()
        if then == "reset":
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return RawServer(talk)


@asynccontextmanager
async def calling(
    rules: AddressRules = LOOPBACK, **options: Any
) -> AsyncIterator[Callable[..., Coroutine[Any, Any, HttpResult]]]:
    """A client, as a function from a URL and a call's fields to the result."""
    client = HttpClient(rules, **options)

    async def call(url: str, **param: Any) -> HttpResult:
        result = await client.call(prepare({"url": url, **param}), VALUES, TRACE)
        assert len(msgspec.json.encode(result)) <= RESULT_LIMIT
        return result

    try:
        yield call
    finally:
        await client.close()


async def call_once(url: str, **param: Any) -> HttpResult:
    async with calling() as call:
        return await call(url, **param)


async def echo_host(request: web.Request) -> web.Response:
    return web.Response(text=request.headers["Host"])
