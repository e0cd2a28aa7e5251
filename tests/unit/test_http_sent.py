"""Calls as a service receives them, and masking of secrets that a response echoes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from aiohttp import web

from drumline.handlers.http.retry import CallOutcome
from tests.unit.loopback import TOKEN, TRACE, call_once, calling, in_loop, responding_with, serving

# --- requests ------------------------------------------------------------------------------------


@in_loop
async def test_call_is_sent_as_specified_and_recorded_in_its_result() -> None:
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

    assert (result.outcome, result.status_code, result.error) == (CallOutcome.SUCCESS, 201, None)
    assert 0 < result.latency_ms < 60_000
    document = json.loads(msgspec.json.encode(result))
    assert document["request"]["method"] == "PUT"
    assert document["request"]["headers"]["Authorization"] == "***"
    assert document["request"]["headers"]["traceparent"] == seen["headers"]["traceparent"]
    assert document["request"]["body"] == '{"run": 42, "t": "***"}'
    assert document["response"]["body"] == '{"ok": true}'
    assert document["response"]["headers"]["X-Request-Id"] == "r1"
    assert document["response"]["truncated"] is False
    # The result has all headers that were sent, except those that frame the message.
    unrecorded = set(seen["headers"]) - set(document["request"]["headers"])
    assert unrecorded == {"Host", "Content-Length"}


@in_loop
async def test_each_method_makes_one_request() -> None:
    seen: list[tuple[str, int | None, str | None]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.method, request.content_length, request.headers.get("Content-Type")))
        return web.Response(text="body")

    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    async with serving(answer) as origin, calling() as call:
        for method in methods:
            result = await call(origin, method=method)
            assert result.outcome is CallOutcome.SUCCESS
            assert result.response is not None
            assert result.response.body == ("" if method == "HEAD" else "body")
    assert [method for method, _, _ in seen] == list(methods)
    assert {content_type for _, _, content_type in seen} == {None}


@in_loop
async def test_a_thousand_calls_run_at_the_same_time() -> None:
    waiting = 0
    all_received = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        nonlocal waiting
        waiting += 1
        if waiting == 1_000:
            all_received.set()
        await all_received.wait()
        return web.Response(text=request.path)

    async with serving(answer) as origin, calling() as call:
        calls = (call(f"{origin}/{i}", timeout=50) for i in range(1_000))
        results = await asyncio.gather(*calls)
    assert {result.outcome for result in results} == {CallOutcome.SUCCESS}
    bodies = [result.response.body for result in results if result.response is not None]
    assert bodies == [f"/{i}" for i in range(1_000)]


@in_loop
async def test_connections_are_reused_and_cookies_are_not_kept() -> None:
    connections: set[object] = set()
    cookies: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        connections.add(request.transport)
        cookies.append(request.headers.get("Cookie"))
        return web.Response(headers={"Set-Cookie": "sid=hunter2hunter2"})

    # With a name, as no client keeps cookies of a bare address.
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
        assert (await call_once(origin)).outcome is CallOutcome.SUCCESS


# --- echoed secrets ------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, *range(16_300, 16_400, 7)])
def test_secrets_are_masked_in_a_response_that_echoes_them(before: int) -> None:
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
async def test_secrets_are_masked_in_an_error_message() -> None:
    server = responding_with(b"HTTP/1.1 Bearer hunter2hunter2 OK\r\n\r\n")
    async with server.running() as origin:
        result = await call_once(
            f"{origin}/?token=hunter3hunter3", headers={"Authorization": "Bearer hunter2hunter2"}
        )
    assert result.outcome is CallOutcome.CONNECTION
    assert "hunter" not in msgspec.json.encode(result).decode()
