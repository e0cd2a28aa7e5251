"""Slow, broken and oversized responses."""

from __future__ import annotations

import asyncio
import gzip
import socket

import pytest
from aiohttp import web

from drumline.handlers.http.retry import CallOutcome
from tests.unit.loopback import RawServer, call_once, calling, in_loop, responding_with, serving

# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(204, CallOutcome.SUCCESS), (404, CallOutcome.CLIENT_ERROR), (503, CallOutcome.SERVER_ERROR)],
)
def test_status_decides_the_outcome(status: int, outcome: CallOutcome) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Retry-After": "7"})

    @in_loop
    async def go() -> None:
        async with serving(answer) as origin:
            result = await call_once(origin)
        assert (result.outcome, result.status_code) == (outcome, status)
        assert result.error is None
        assert result.response is not None
        assert result.response.headers["Retry-After"] == "7"

    go()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["{origin}/inside", "http://169.254.169.254/", "//evil.example/"])
def test_a_redirect_is_not_followed(status: int, where: str) -> None:
    paths: list[str] = []

    @in_loop
    async def go() -> None:
        location = ""

        async def answer(request: web.Request) -> web.Response:
            paths.append(request.path)
            return web.Response(status=status, headers={"Location": location + "?token=abcdef"})

        async with serving(answer) as origin:
            location = where.format(origin=origin)
            result = await call_once(f"{origin}/start")
            assert (result.outcome, result.status_code) == (CallOutcome.REDIRECT, status)
            assert result.response is not None
            assert result.response.headers["Location"] == f"{location}?token=***"

    go()
    assert paths == ["/start"]


@in_loop
async def test_slow_response_times_out_and_its_connection_is_closed() -> None:
    server = responding_with(then="hang")
    async with server.running() as origin:
        result = await call_once(origin, timeout=0.2)
        await server.disconnected.wait()
    assert (result.outcome, result.status_code, result.response) == (
        CallOutcome.TIMEOUT,
        None,
        None,
    )
    assert result.error == "no response within 0.2 s"
    assert result.latency_ms >= 200
    assert server.connections == 1


@in_loop
async def test_unfinished_response_times_out_and_its_start_is_kept() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nContent-Type: text/plain\r\n\r\n"
    server = responding_with(head + b"half of ", b"it", then="hang")
    async with server.running() as origin:
        result = await call_once(origin, timeout=0.3)
        await server.disconnected.wait()
    assert (result.outcome, result.status_code) == (CallOutcome.TIMEOUT, 200)
    assert result.error == "the response was not complete within 0.3 s"
    assert result.response is not None
    assert (result.response.body, result.response.truncated) == ("half of it", True)


@in_loop
async def test_timeout_applies_to_a_response_sent_in_small_pieces() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    server = RawServer(drip)
    async with server.running() as origin:
        result = await call_once(origin, timeout=0.3)
        await server.disconnected.wait()
    assert result.outcome is CallOutcome.TIMEOUT


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize("then", ["close", "reset"])
def test_broken_connection_is_not_followed_by_a_second_request(method: str, then: str) -> None:
    @in_loop
    async def go() -> None:
        server = responding_with(then=then)
        async with server.running() as origin:
            result = await call_once(origin, method=method, body="x" if method == "PUT" else None)
        assert (result.outcome, result.status_code) == (CallOutcome.CONNECTION, None)
        assert result.error is not None and "connection" in result.error
        assert server.connections == 1

    go()


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", 200, "cut off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", 200, "cut off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", None, "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", None, "not valid HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", None, "not valid HTTP"),
        (b"\x00\x01\x02\r\n\r\n", None, "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n", None, "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-A: a\r\n" * 5_000 + b"\r\n", None, ""),
    ],
)
def test_incomplete_or_invalid_response_is_a_connection_error(
    answer: bytes, status: int | None, error: str
) -> None:
    @in_loop
    async def go() -> None:
        async with responding_with(answer).running() as origin:
            result = await call_once(origin)
        assert (result.outcome, result.status_code) == (CallOutcome.CONNECTION, status)
        assert result.error is not None and error in result.error
        if result.response is not None:
            assert result.response.truncated

    go()


@in_loop
async def test_bytes_after_the_content_length_are_not_read_as_the_next_response() -> None:
    smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    server = responding_with(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + smuggled, then="hang"
    )
    async with server.running() as origin, calling() as call:
        for _ in range(2):
            result = await call(origin)
            assert result.response is not None
            assert result.response.body == "ok"
    assert server.connections == 2


@pytest.mark.parametrize("then", ["hang", "reset"])
def test_response_is_read_even_if_the_service_does_not_read_the_body(then: str) -> None:
    @in_loop
    async def go() -> None:
        server = responding_with(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then=then)
        async with server.running() as origin:
            result = await call_once(origin, body="\U0001f600" * 60_000, timeout=30)
        assert (result.outcome, result.status_code) == (CallOutcome.SUCCESS, 200)

    go()


@in_loop
async def test_refused_connection_is_a_connection_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = await call_once(f"http://127.0.0.1:{port}")
    assert (result.outcome, result.status_code) == (CallOutcome.CONNECTION, None)
    assert result.error is not None and "connection failed" in result.error


@in_loop
async def test_cancelled_call_closes_its_connection() -> None:
    server = responding_with(then="hang")
    async with server.running() as origin, calling() as call:
        running = asyncio.create_task(call(origin))
        while not server.connections:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await server.disconnected.wait()


# --- large responses -----------------------------------------------------------------------------


@in_loop
async def test_huge_response_is_read_in_part_and_the_connection_closed() -> None:
    written = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
        while True:
            writer.write(b"0123456789abcdef" * 4_096)
            await writer.drain()
            written += 65_536

    server = RawServer(flood)
    async with server.running() as origin:
        result = await call_once(origin)
        await server.disconnected.wait()
    assert (result.outcome, result.status_code) == (CallOutcome.SUCCESS, 200)
    assert result.response is not None
    assert len(result.response.body) == 16 * 1024
    assert result.response.truncated
    assert written < 32 * 1024 * 1024  # the socket buffers between server and client


@in_loop
async def test_response_above_the_stored_size_is_read_and_its_connection_reused() -> None:
    connections: set[object] = set()

    async def answer(request: web.Request) -> web.Response:
        connections.add(request.transport)
        return web.Response(text="x" * 500_000)

    async with serving(answer) as origin, calling(keep=1_000) as call:
        for _ in range(3):
            result = await call(origin)
            assert result.response is not None
            assert len(result.response.body) == 1_000 and result.response.truncated
    assert len(connections) == 1


@in_loop
async def test_gzip_bomb_is_not_decompressed() -> None:
    bomb = gzip.compress(b"\0" * 20_000_000)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with serving(answer) as origin:
        result = await call_once(origin)
    assert result.outcome is CallOutcome.SUCCESS
    assert result.response is not None and result.response.truncated
    # A NUL has six bytes in JSON, and the limit counts bytes of JSON.
    assert result.response.body == "\0" * (16 * 1024 // 6)


@in_loop
async def test_compressed_response_is_decompressed() -> None:
    async def answer(request: web.Request) -> web.Response:
        response = web.Response(text="ä" * 5_000)
        response.enable_compression()
        return response

    async with serving(answer) as origin:
        result = await call_once(origin)
    assert result.response is not None
    assert (result.response.body, result.response.truncated) == ("ä" * 5_000, False)
    assert result.response.headers["Content-Encoding"] in ("gzip", "deflate")
