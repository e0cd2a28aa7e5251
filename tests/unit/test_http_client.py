"""Calls against real servers on loopback: good ones, slow ones, broken ones and hostile ones."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from drumline.domain.template import Values
from drumline.domain.verdict import RESULT_LIMIT
from drumline.handlers.http import connector as connector_module
from drumline.handlers.http.addresses import AddressRules, parse_allowlist
from drumline.handlers.http.client import HttpClient
from drumline.handlers.http.prepare import prepare
from drumline.handlers.http.result import HttpResult
from drumline.handlers.http.retry import Outcome

TOKEN = "c0ffee" * 8
VALUES: Values = {
    "run_id": 42,
    "job_id": 7,
    "scheduled_time": "2026-01-02T03:04:05Z",
    "attempt": 1,
    "callback_url": "https://d.example/api/v1/callbacks/42",
    "callback_token": TOKEN,
}
TRACE = "0af7651916cd43dd8448eb211c80319c"
LOOPBACK = AddressRules(allow_loopback=True)
FOREVER = 60.0
OPENSSL = shutil.which("openssl")

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Raw = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test, and let nothing of it hang."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(FOREVER):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """A web server that answers every request so."""
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
    """A server that says exactly what the test wants, once for each connection."""

    def __init__(self, talk: Raw) -> None:
        self.talk = talk
        self.connections = 0
        self.hung_up = asyncio.Event()
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(ConnectionError):
                await self.talk(reader, writer)
        finally:
            self.hung_up.set()
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            server.close()


def saying(*parts: bytes, then: str = "close") -> RawServer:
    """Read a request, say these bytes, and close, reset, or wait for the other to hang up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then == "hang":
            await reader.read()
        if then == "reset":
            end: socket.socket = writer.get_extra_info("socket")
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

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


# --- the ordinary case ----------------------------------------------------------------------------


@in_loop
async def test_a_call_is_sent_as_asked_and_its_result_says_what_happened() -> None:
    seen: dict[str, Any] = {}

    async def answer(request: web.Request) -> web.Response:
        seen.update(
            method=request.method,
            path=request.raw_path,
            headers=dict(request.headers),
            body=await request.text(),
        )
        return web.json_response({"ok": True}, status=201, headers={"X-Request-Id": "r1"})

    async with serving(answer) as origin:
        result = await call_once(
            f"{origin}/jobs/{{{{job_id}}}}?at={{{{scheduled_time}}}}",
            method="PUT",
            headers={"Authorization": "Bearer hunter2hunter2", "X-Run": "{{run_id}}"},
            body='{"run": {{run_id}}, "t": "{{callback_token}}"}',
        )
    assert seen["method"] == "PUT"
    assert seen["path"] == "/jobs/7?at=2026-01-02T03%3A04%3A05Z"
    assert seen["body"] == '{"run": 42, "t": "%s"}' % TOKEN  # noqa: UP031  # braces
    assert seen["headers"]["Authorization"] == "Bearer hunter2hunter2"
    assert seen["headers"]["X-Run"] == "42"
    assert seen["headers"]["Content-Type"] == "application/json"
    assert seen["headers"]["traceparent"].startswith(f"00-{TRACE}-")
    assert f"http://{seen['headers']['Host']}" == origin

    assert (result.outcome, result.status_code, result.error) == (Outcome.SUCCESS, 201, None)
    assert 0 < result.latency_ms < 60_000
    document = json.loads(msgspec.json.encode(result))
    assert document["request"]["method"] == "PUT"
    assert document["request"]["headers"]["Authorization"] == "***"
    assert document["request"]["headers"]["traceparent"] == seen["headers"]["traceparent"]
    assert document["request"]["body"] == '{"run": 42, "t": "***"}'
    assert document["response"]["body"] == '{"ok": true}'
    assert document["response"]["headers"]["X-Request-Id"] == "r1"
    assert document["response"]["truncated"] is False
    # All headers went out as they are shown, but for the secret and what frames the message.
    unshown = set(seen["headers"]) - set(document["request"]["headers"])
    assert unshown == {"Host", "Content-Length"}


@in_loop
async def test_each_method_is_one_request() -> None:
    seen: list[tuple[str, int | None, str | None]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.method, request.content_length, request.headers.get("Content-Type")))
        return web.Response(text="body")

    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    async with serving(answer) as origin, calling() as call:
        for method in methods:
            result = await call(origin, method=method)
            assert result.outcome is Outcome.SUCCESS
            assert result.response is not None
            assert result.response.body == ("" if method == "HEAD" else "body")
    assert [method for method, _, _ in seen] == list(methods)
    assert {content_type for _, _, content_type in seen} == {None}


@in_loop
async def test_a_thousand_calls_are_under_way_at_once() -> None:
    waiting = 0
    all_there = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        nonlocal waiting
        waiting += 1
        if waiting == 1_000:
            all_there.set()
        await all_there.wait()
        return web.Response(text=request.path)

    async with serving(answer) as origin, calling() as call:
        calls = (call(f"{origin}/{i}", timeout=50) for i in range(1_000))
        results = await asyncio.gather(*calls)
    assert {result.outcome for result in results} == {Outcome.SUCCESS}
    bodies = [result.response.body for result in results if result.response is not None]
    assert bodies == [f"/{i}" for i in range(1_000)]


@in_loop
async def test_connections_are_used_again_and_cookies_are_not() -> None:
    connections: set[object] = set()
    cookies: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        connections.add(request.transport)
        cookies.append(request.headers.get("Cookie"))
        return web.Response(headers={"Set-Cookie": "sid=hunter2hunter2"})

    # By a name: for a bare address no client would keep a cookie anyway.
    async with serving(answer) as origin, calling(lookup=lambda *_: ["127.0.0.1"]) as call:
        for _ in range(20):
            result = await call(f"http://name.example:{origin.rpartition(':')[2]}/")
            assert b"hunter2" not in msgspec.json.encode(result)
    assert len(connections) == 1
    assert set(cookies) == {None}


@in_loop
async def test_the_environment_does_not_choose_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def answer(request: web.Request) -> web.Response:
        return web.Response()

    async with serving(answer) as origin:
        assert (await call_once(origin)).outcome is Outcome.SUCCESS


# --- answers that are failures --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(204, Outcome.SUCCESS), (404, Outcome.CLIENT_ERROR), (503, Outcome.SERVER_ERROR)],
)
def test_the_status_decides(status: int, outcome: Outcome) -> None:
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
            assert (result.outcome, result.status_code) == (Outcome.REDIRECT, status)
            assert result.response is not None
            assert result.response.headers["Location"] == f"{location}?token=***"

    go()
    assert paths == ["/start"]


@in_loop
async def test_a_slow_answer_times_out_and_its_connection_is_closed() -> None:
    server = saying(then="hang")
    async with server.running() as origin:
        result = await call_once(origin, timeout=0.2)
        await server.hung_up.wait()
    assert (result.outcome, result.status_code, result.response) == (Outcome.TIMEOUT, None, None)
    assert result.error == "no answer within 0.2 s"
    assert result.latency_ms >= 200
    assert server.connections == 1


@in_loop
async def test_an_answer_that_never_ends_times_out_with_what_came_of_it() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nContent-Type: text/plain\r\n\r\n"
    server = saying(head + b"half of ", b"it", then="hang")
    async with server.running() as origin:
        result = await call_once(origin, timeout=0.3)
        await server.hung_up.wait()
    assert (result.outcome, result.status_code) == (Outcome.TIMEOUT, 200)
    assert result.error == "no end of the answer within 0.3 s"
    assert result.response is not None
    assert (result.response.body, result.response.truncated) == ("half of it", True)


@in_loop
async def test_an_answer_in_drops_is_bounded_by_the_same_timeout() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    server = RawServer(drip)
    async with server.running() as origin:
        result = await call_once(origin, timeout=0.3)
        await server.hung_up.wait()
    assert result.outcome is Outcome.TIMEOUT


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize("then", ["close", "reset"])
def test_a_broken_connection_is_one_failure_and_not_a_second_request(
    method: str, then: str
) -> None:
    @in_loop
    async def go() -> None:
        server = saying(then=then)
        async with server.running() as origin:
            result = await call_once(origin, method=method, body="x" if method == "PUT" else None)
        assert (result.outcome, result.status_code) == (Outcome.CONNECTION, None)
        assert result.error is not None and "connection" in result.error
        assert server.connections == 1

    go()


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", 200, "broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", 200, "broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", None, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", None, "not HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", None, "not HTTP"),
        (b"\x00\x01\x02\r\n\r\n", None, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n", None, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-A: a\r\n" * 5_000 + b"\r\n", None, ""),
    ],
)
def test_an_answer_that_is_not_whole_is_a_failure(
    answer: bytes, status: int | None, error: str
) -> None:
    @in_loop
    async def go() -> None:
        async with saying(answer).running() as origin:
            result = await call_once(origin)
        assert (result.outcome, result.status_code) == (Outcome.CONNECTION, status)
        assert result.error is not None and error in result.error
        if result.response is not None:
            assert result.response.truncated

    go()


@in_loop
async def test_more_bytes_than_were_announced_are_not_taken_for_the_next_answer() -> None:
    smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    server = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + smuggled, then="hang")
    async with server.running() as origin, calling() as call:
        for _ in range(2):
            result = await call(origin)
            assert result.response is not None
            assert result.response.body == "ok"
    assert server.connections == 2


@pytest.mark.parametrize("then", ["hang", "reset"])
def test_a_service_that_does_not_read_our_body_can_still_answer(then: str) -> None:
    @in_loop
    async def go() -> None:
        server = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then=then)
        async with server.running() as origin:
            result = await call_once(origin, body="\U0001f600" * 60_000, timeout=30)
        assert (result.outcome, result.status_code) == (Outcome.SUCCESS, 200)

    go()


@in_loop
async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = await call_once(f"http://127.0.0.1:{port}")
    assert (result.outcome, result.status_code) == (Outcome.CONNECTION, None)
    assert result.error is not None and "no connection" in result.error


@in_loop
async def test_a_call_that_is_cancelled_closes_its_connection_and_gives_no_result() -> None:
    server = saying(then="hang")
    async with server.running() as origin, calling() as call:
        running = asyncio.create_task(call(origin))
        while not server.connections:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await server.hung_up.wait()


# --- answers that are too much --------------------------------------------------------------------


@in_loop
async def test_a_huge_answer_is_read_in_part_and_hung_up_on() -> None:
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
        await server.hung_up.wait()
    assert (result.outcome, result.status_code) == (Outcome.SUCCESS, 200)
    assert result.response is not None
    assert len(result.response.body) == 16 * 1024
    assert result.response.truncated
    assert written < 32 * 1024 * 1024  # what it can be ahead of us by


@in_loop
async def test_an_answer_of_some_size_is_read_to_its_end_and_its_connection_used_again() -> None:
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
async def test_a_gzip_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * 20_000_000)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with serving(answer) as origin:
        result = await call_once(origin)
    assert result.outcome is Outcome.SUCCESS
    assert result.response is not None and result.response.truncated
    # A NUL has six bytes in JSON: it is those that are counted.
    assert result.response.body == "\0" * (16 * 1024 // 6)


@in_loop
async def test_a_packed_answer_is_unpacked() -> None:
    async def answer(request: web.Request) -> web.Response:
        response = web.Response(text="ä" * 5_000)
        response.enable_compression()
        return response

    async with serving(answer) as origin:
        result = await call_once(origin)
    assert result.response is not None
    assert (result.response.body, result.response.truncated) == ("ä" * 5_000, False)
    assert result.response.headers["Content-Encoding"] in ("gzip", "deflate")


# --- secrets that come back -----------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, *range(16_300, 16_400, 7)])
def test_secrets_are_masked_in_an_answer_that_echoes_them(before: int) -> None:
    async def echo(request: web.Request) -> web.Response:
        secrets = f"{request.headers['Authorization']} {request.query['t']} "
        return web.Response(
            text="a" * before + secrets * 3 + '{"password": "hunter3"}',
            status=500,
            headers={"X-Request-Id": request.headers["Authorization"]},
        )

    @in_loop
    async def go() -> None:
        async with serving(echo) as origin:
            result = await call_once(
                f"{origin}/?t={{{{callback_token}}}}",
                headers={"Authorization": "Bearer hunter2hunter2"},
            )
        text = msgspec.json.encode(result).decode()
        assert "hunter" not in text and TOKEN[:12] not in text
        assert result.response is not None
        assert result.response.headers["X-Request-Id"] == "***"

    go()


@in_loop
async def test_secrets_are_masked_in_what_a_failure_says() -> None:
    server = saying(b"HTTP/1.1 Bearer hunter2hunter2 OK\r\n\r\n")
    async with server.running() as origin:
        result = await call_once(
            f"{origin}/?token=hunter3hunter3", headers={"Authorization": "Bearer hunter2hunter2"}
        )
    assert result.outcome is Outcome.CONNECTION
    assert "hunter" not in msgspec.json.encode(result).decode()


# --- names and addresses --------------------------------------------------------------------------


async def hello(request: web.Request) -> web.Response:
    return web.Response(text=request.headers["Host"])


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
     "http://localhost:{port}/", "http://0.0.0.0:{port}/", "http://169.254.169.254/",
     "http://[::ffff:7f00:1]:{port}/"],
)  # fmt: skip
def test_no_spelling_of_this_machine_is_called(url: str) -> None:
    @in_loop
    async def go() -> None:
        async with serving(hello) as origin, calling(AddressRules()) as call:
            port = origin.rpartition(":")[2]
            for _ in range(2):  # the first refusal must not be taken for a clearance
                result = await call(url.format(port=port))
                assert (result.outcome, result.response) == (Outcome.REFUSED, None)
                assert result.error is not None and "may not be called" in result.error

    go()


@in_loop
async def test_a_name_is_resolved_once_and_called_by_that_address_under_its_own_name() -> None:
    lookups: list[str] = []

    def lookup(host: str, port: int) -> Sequence[str]:
        lookups.append(host)
        return ["127.0.0.1"] if len(lookups) == 1 else ["169.254.169.254"]

    async with serving(hello) as origin, calling(lookup=lookup) as call:
        port = origin.rpartition(":")[2]
        result = await call(f"http://name.example:{port}/")
        assert result.response is not None
        assert result.response.body == f"name.example:{port}"
    assert lookups == ["name.example"]


@in_loop
async def test_a_name_that_answers_differently_the_second_time_is_refused_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def goodbye(request: web.Request) -> web.Response:
        return web.Response(headers={"Connection": "close"})

    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1", "127.0.0.2"]])
    rules = AddressRules(allowlist=parse_allowlist(["127.0.0.1"]))
    monkeypatch.setattr(connector_module, "DNS_CACHE", 0)  # every connection asks anew
    async with serving(goodbye) as origin, calling(rules, lookup=lambda *_: next(answers)) as call:
        url = f"http://name.example:{origin.rpartition(':')[2]}/"
        outcomes = [(await call(url)).outcome for _ in range(3)]
    assert outcomes == [Outcome.SUCCESS, Outcome.REFUSED, Outcome.REFUSED]


@in_loop
async def test_a_refusal_reaches_all_who_wait_for_the_same_name() -> None:
    lookups = 0

    def lookup(host: str, port: int) -> Sequence[str]:
        nonlocal lookups
        lookups += 1
        return ["10.0.0.1", "127.0.0.1"]

    async with calling(AddressRules(), lookup=lookup) as call:
        results = await asyncio.gather(*(call("http://name.example/") for _ in range(50)))
    assert {result.outcome for result in results} == {Outcome.REFUSED}
    assert lookups <= 2


@in_loop
async def test_the_allowlist_lets_a_name_through_to_this_machine() -> None:
    rules = AddressRules(allowlist=parse_allowlist(["name.example"]))
    async with serving(hello) as origin, calling(rules, lookup=lambda *_: ["127.0.0.1"]) as call:
        port = origin.rpartition(":")[2]
        assert (await call(f"http://name.example:{port}/")).outcome is Outcome.SUCCESS
        assert (await call(f"http://other.example:{port}/")).outcome is Outcome.REFUSED
        assert (await call(f"http://127.0.0.1:{port}/")).outcome is Outcome.REFUSED


@in_loop
async def test_a_name_that_does_not_exist() -> None:
    def lookup(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with calling(lookup=lookup) as call:
        result = await call("http://nowhere.example/")
    assert (result.outcome, result.status_code) == (Outcome.CONNECTION, None)
    assert result.error is not None and "cannot be resolved" in result.error


@in_loop
async def test_a_name_server_that_hangs_holds_up_nobody_else() -> None:
    import threading

    release = threading.Event()

    def lookup(host: str, port: int) -> Sequence[str]:
        if host == "slow.example":
            release.wait(FOREVER)
        return ["127.0.0.1"]

    try:
        async with serving(hello) as origin, calling(lookup=lookup) as call:
            port = origin.rpartition(":")[2]
            slow = asyncio.create_task(call(f"http://slow.example:{port}/", timeout=0.5))
            assert (await call(f"http://fast.example:{port}/")).outcome is Outcome.SUCCESS
            assert (await slow).outcome is Outcome.TIMEOUT
    finally:
        release.set()


# --- TLS ------------------------------------------------------------------------------------------


@in_loop
async def test_the_name_and_not_the_address_is_in_the_tls_handshake() -> None:
    hellos: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hellos.append(await reader.read(4_096))

    server = RawServer(listen)
    async with server.running(), calling(lookup=lambda *_: ["127.0.0.1"]) as call:
        result = await call(f"https://name.example:{server.port}/")
    assert result.outcome in (Outcome.CONNECTION, Outcome.TLS)
    assert b"name.example" in hellos[0]


@in_loop
async def test_a_server_that_does_not_speak_tls() -> None:
    async with serving(hello) as origin:
        result = await call_once(origin.replace("http:", "https:"))
    assert result.outcome is Outcome.TLS


@pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificate")
def test_a_certificate_that_nobody_trusts_is_refused(tmp_path: Path) -> None:
    subprocess.run(
        [str(OPENSSL), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
         "-subj", "/CN=name.example", "-addext", "subjectAltName=DNS:name.example"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    requests = 0

    @in_loop
    async def go() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            requests += bool(await reader.read(1))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        async with calling(lookup=lambda *_: ["127.0.0.1"]) as call:
            result = await call(f"https://name.example:{port}/")
        server.close()
        assert result.outcome is Outcome.TLS
        assert result.error is not None and "certificate" in result.error

    go()
    assert requests == 0
