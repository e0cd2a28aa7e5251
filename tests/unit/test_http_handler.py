"""The `http` handler: a task gives a result, a wait for a callback, or a failure with details."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from aiohttp import web

from drumline.config import Settings
from drumline.domain.jobs.template import BadTemplate
from drumline.domain.states import Cause, TaskState
from drumline.domain.task import DueTask, RunInfo, TaskBody, encode_task_body
from drumline.errors import DrumlineError, WrongUse
from drumline.handlers.base import WaitForCallback, handler_specs
from drumline.handlers.http import handler as handler_module
from drumline.handlers.http.handler import HttpHandler, template_values
from drumline.handlers.http.result import HttpCallFailed, HttpResult
from drumline.handlers.http.retry import CallOutcome
from drumline.handlers.registry import registry
from drumline.runner.execute import encode_result
from drumline.task import Task
from tests.unit.loopback import Answer, in_loop, serving

RUN = RunInfo(job_id=7, scheduled_at=1_767_323_045_000_000, run_attempt=3, trace_id="ab" * 16)
CALLBACK = ("https://d.example/api/v1/callbacks/42", "c0ffee" * 8)


def task_of(
    param: object, run: RunInfo | None = RUN, callback: tuple[str, str] | None = None
) -> Task:
    packed = None if run is None else msgspec.msgpack.encode(run)
    body: dict[str, Any] = dict.fromkeys(TaskBody.__struct_fields__)
    body |= {"region": "default", "param": json.dumps(param), "run": packed}
    due: dict[str, Any] = dict.fromkeys(DueTask.__struct_fields__)
    due |= {"id": 42, "version": 1, "status": TaskState.PENDING, "attempt": 1}
    return Task(
        DueTask(**due | {"type": "http", "body": encode_task_body(TaskBody(**body))}), callback
    )


async def processed(task: Task, settings: Settings | None = None) -> Any:
    handler = HttpHandler(settings or Settings(http_allow_loopback=True))
    try:
        return await handler.process(task)
    finally:
        await handler.close()


def respond_with(status: int, text: str = "", **headers: str) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=text, headers=headers)

    return answer


async def failure(answer: Answer, **param: Any) -> HttpCallFailed:
    async with serving(answer) as origin:
        with pytest.raises(HttpCallFailed) as caught:
            await processed(task_of({"url": f"{origin}/x?token=abc", **param}))
    return caught.value


def test_handler_is_registered_with_its_schema() -> None:
    spec = registry["http/http"].spec
    assert (spec.target_type, spec.type, spec.is_async, spec.timeout) == ("http", "http", True, 20)
    assert not spec.captures and not spec.rolls_back
    assert spec.schema is not None
    assert handler_specs(HttpHandler(), "here")[0].doc


def test_template_values_of_a_run() -> None:
    task = task_of({})
    assert template_values(task, RUN) == {
        "run_id": 42,
        "job_id": 7,
        "scheduled_time": "2026-01-02T03:04:05Z",
        "attempt": 2,
        "callback_url": None,
        "callback_token": None,
    }
    odd = msgspec.structs.replace(RUN, scheduled_at=RUN.scheduled_at + 1_500)
    assert template_values(task, odd)["scheduled_time"] == "2026-01-02T03:04:05.001500Z"
    alone = template_values(task, None)
    assert (alone["run_id"], alone["job_id"], alone["scheduled_time"]) == (42, None, None)


@in_loop
async def test_result_of_a_successful_call_is_valid_json() -> None:
    seen: dict[str, str] = {}

    async def answer(request: web.Request) -> web.Response:
        seen.update(request.headers)
        return web.json_response({"echo": await request.text()})

    async with serving(answer) as origin:
        result = await processed(
            task_of({"url": origin, "body": "{{run_id}} {{scheduled_time}} {{attempt}}"})
        )
    assert isinstance(result, HttpResult)
    document = json.loads(encode_result(result) or "")
    assert (document["outcome"], document["status_code"]) == ("success", 200)
    assert json.loads(document["response"]["body"]) == {"echo": "42 2026-01-02T03:04:05Z 2"}
    assert seen["traceparent"].split("-")[1] == RUN.trace_id


@in_loop
async def test_failure_has_the_result_of_the_call() -> None:
    error = await failure(respond_with(503, "down for\n  a while", **{"Retry-After": "30"}))
    assert isinstance(error, DrumlineError)
    assert (error.result.outcome, error.result.status_code) == (CallOutcome.SERVER_ERROR, 503)
    assert error.wait == 30
    assert error.cause is Cause.ERROR
    text = str(error)
    assert text.startswith("GET http://127.0.0.1:")
    assert "token=***: 503 after " in text
    assert text.endswith(" ms: down for a while")


@pytest.mark.parametrize(
    ("status", "retry", "final"),
    [
        (500, None, False),
        (404, None, True),
        (404, {"max_attempts": 2, "on": ["4xx"]}, False),
        (500, {"max_attempts": 2, "on": ["timeout"]}, True),
        (302, '{"max_attempts": 2, "on": [302]}', False),
    ],
)
def test_retry_policy_decides_whether_a_failure_is_final(
    status: int, retry: Any, final: bool
) -> None:
    @in_loop
    async def go() -> None:
        assert (await failure(respond_with(status), retry=retry)).final is final

    go()


@in_loop
async def test_a_timeout_has_its_own_cause() -> None:
    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    error = await failure(slow, timeout=0.1)
    assert (error.result.outcome, error.cause, error.final) == (
        CallOutcome.TIMEOUT,
        Cause.TIMEOUT,
        False,
    )
    assert "no response within 0.1 s" in str(error)


@in_loop
async def test_refused_address_is_a_final_failure() -> None:
    async with serving(respond_with(200)) as origin:
        with pytest.raises(HttpCallFailed, match="may not be called") as caught:
            await processed(task_of({"url": origin}), Settings())
    assert (caught.value.result.outcome, caught.value.final) == (CallOutcome.REFUSED, True)


@in_loop
async def test_an_async_call_that_is_accepted_waits_for_its_callback() -> None:
    seen: dict[str, str] = {}

    async def answer(request: web.Request) -> web.Response:
        seen.update(request.headers)
        return web.Response(status=202)

    async with serving(answer) as origin:
        param = {"url": origin, "exec_type": "ASYNC", "callback_timeout": 90}
        waiting = await processed(task_of(param, callback=CALLBACK))
        with pytest.raises(WrongUse, match="no callback URL and token"):
            await processed(task_of(param))
    assert isinstance(waiting, WaitForCallback)
    assert (waiting.seconds, waiting.result.status_code) == (90, 202)
    url, token = CALLBACK
    assert (seen["Drumline-Callback-Url"], seen["Drumline-Callback-Token"]) == (url, token)
    assert token not in (encode_result(waiting.result) or "")


@in_loop
async def test_an_async_call_that_is_not_accepted_is_a_failure() -> None:
    async with serving(respond_with(500)) as origin:
        with pytest.raises(HttpCallFailed):
            await processed(task_of({"url": origin, "exec_type": "ASYNC"}, callback=CALLBACK))


@in_loop
async def test_invalid_param_is_reported_with_its_field() -> None:
    for param, why in (
        (None, "param is wrong"),
        ({"url": "http://h/", "colour": 1}, "colour is wrong"),
        ({"url": "http://h/{{nope}}"}, "url is wrong"),
        ({"url": "http://h/{{job_id}}"}, "url needs job_id"),
    ):
        with pytest.raises(WrongUse, match=why):
            await processed(task_of(param, run=None))
    with pytest.raises(BadTemplate):
        await processed(task_of({"url": "http://h/{{nope}}"}))


@in_loop
async def test_calls_share_one_client_and_runs_share_one_prepared_call() -> None:
    handler = HttpHandler(Settings(http_allow_loopback=True))
    assert handler.client() is handler.client()
    param = json.dumps({"url": "http://h/"})
    assert handler_module._prepared(param) is handler_module._prepared("".join(param))
    await handler.close()
    await handler.close()


def test_importing_the_handler_does_not_import_aiohttp() -> None:
    code = "import drumline.handlers.http.handler, sys; print(sorted({'aiohttp'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
