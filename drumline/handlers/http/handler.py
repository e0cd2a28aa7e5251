"""The handler of type `http`: makes one HTTP call per attempt of a task.

The HTTP client is imported with the first call, so a runner without HTTP calls does not load an
HTTP library.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from drumline.config import Settings, load
from drumline.domain.jobs.template import CALLBACK_TOKEN, CALLBACK_URL, SlotValues
from drumline.domain.task import RunInfo
from drumline.errors import WrongUse
from drumline.handlers.base import Handler, WaitForCallback
from drumline.handlers.http.addresses import AddressRules
from drumline.handlers.http.call import DEFAULT_TIMEOUT, TASK_MARGIN, ExecType, HttpParam
from drumline.handlers.http.prepare import PreparedCall, prepare
from drumline.handlers.http.result import HttpCallFailed, HttpResult
from drumline.handlers.http.retry import CallOutcome
from drumline.handlers.registry import register
from drumline.task import Task

if TYPE_CHECKING:
    from drumline.handlers.http.client import HttpClient

PREPARED_CALLS = 512
"""Size of the cache of prepared calls: all runs of a job have the same param."""


class HttpHandler(Handler):
    """Calls a service over HTTP."""

    target_type = "http"
    types = ("http",)
    timeout = DEFAULT_TIMEOUT + TASK_MARGIN
    callbacks = True
    param_type = HttpParam

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, HttpClient] = (
            WeakKeyDictionary()
        )

    async def process(self, task: Task) -> HttpResult | WaitForCallback:
        """Calls a service over HTTP; 2xx is success."""
        prepared = _prepared(task.body.param or "null")
        call = prepared.call
        run = task.run
        values = template_values(task, run)
        waits = call.exec_type is ExecType.ASYNC
        if waits and not (values[CALLBACK_URL] and values[CALLBACK_TOKEN]):
            raise WrongUse(reason="exec_type is ASYNC, but this task has no callback URL and token")
        result = await self.client().call(prepared, values, run.trace_id if run else None)
        if result.outcome is not CallOutcome.SUCCESS:
            wanted = call.retry.retries(result.outcome, result.status_code)
            raise HttpCallFailed(result, final=not wanted)
        return WaitForCallback(call.callback_timeout, result) if waits else result

    def client(self) -> HttpClient:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            from drumline.handlers.http.client import HttpClient

            settings = self._settings or load()
            keep = settings.http_response_kept_bytes
            client = self._clients[loop] = HttpClient(AddressRules.of(settings), keep=keep)
        return client

    async def close(self) -> None:
        """Close the connections of the running event loop. A runner leaves that to its exit."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


def template_values(task: Task, run: RunInfo | None) -> SlotValues:
    """The values of the names in a task's templates."""
    return {
        "run_id": task.id,
        "job_id": run.job_id if run else None,
        "scheduled_time": _iso_utc(run.scheduled_at) if run else None,
        "attempt": task.attempt,
        CALLBACK_URL: task.callback_url,
        CALLBACK_TOKEN: task.callback_token,
    }


@lru_cache(maxsize=256)
def _iso_utc(us: int) -> str:
    """Microseconds as ISO 8601 in UTC, with a fraction only if it is not zero."""
    seconds, fraction = divmod(us, 1_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:06d}Z" if fraction else f"{text}Z"


@lru_cache(maxsize=PREPARED_CALLS)
def _prepared(param: str) -> PreparedCall:
    return prepare(msgspec.json.decode(param))


register("http", HttpHandler)
