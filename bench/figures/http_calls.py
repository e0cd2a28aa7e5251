"""HTTP tasks per second against a bare aiohttp loop (P8)."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp import web

from bench.figure import LIMIT, OURS, Benchmark, BenchOptions, Contestant, Figure, at_least
from bench.load import paused_rate
from tests.ports import free_port
from tests.stack import Stack

CONCURRENT_CALLS = 500
"""As many as one worker makes."""
WARM_UP = 500


def calls(options: BenchOptions) -> Benchmark:
    """HTTP tasks of two workers to a server on this machine."""
    count = 3_000 if options.quick else 20_000
    figure = Figure(
        "P8",
        f"{count:,} HTTP tasks, 2 workers",
        "calls/s",
        (at_least(0.75, LIMIT),),
        higher_is_better=True,
    )
    return Benchmark(
        (figure,),
        (
            Contestant(OURS, 8 + count / 1_000, lambda: {figure.id: _http_tasks(count)}),
            Contestant(LIMIT, 3 + count / 2_000, lambda: {figure.id: _bare_calls(count)}),
        ),
        options.rounds,
    )


def _http_tasks(count: int) -> float:
    with _server() as url, Stack("", workers=2, http_allow_loopback=True) as stack:
        param = json.dumps({"url": url})
        paused_rate(stack, "http", WARM_UP, param=param)
        return paused_rate(stack, "http", count, param=param)


def _bare_calls(count: int) -> float:
    with _server() as url:
        asyncio.run(_call(url, WARM_UP))
        return asyncio.run(_call(url, count))


async def _call(url: str, count: int) -> float:
    left = iter(range(count))

    async def one_by_one(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.get(url) as answer:
                await answer.read()
                assert answer.status == 200

    connector = aiohttp.TCPConnector(limit=CONCURRENT_CALLS)
    async with aiohttp.ClientSession(connector=connector) as session:
        begun = time.perf_counter()
        await asyncio.gather(*(one_by_one(session) for _ in range(CONCURRENT_CALLS)))
        return count / (time.perf_counter() - begun)


@contextmanager
def _server() -> Iterator[str]:
    """The URL of a server in a process of its own."""
    port = free_port()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port}/"
    try:
        asyncio.run(_until_ready(url))
        yield url
    finally:
        server.kill()
        server.join()


async def _until_ready(url: str) -> None:
    deadline = time.monotonic() + 30
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url):
                    return
            except aiohttp.ClientConnectionError:
                assert time.monotonic() < deadline, "the server did not start"
                await asyncio.sleep(0.05)


def _serve(port: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    app = web.Application()
    app.router.add_route("*", "/", answer)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)
