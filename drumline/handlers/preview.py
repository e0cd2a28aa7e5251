"""Shows what a batch would change in a target, without changing it: the dry run.

`drumline batch submit --dry-run` schedules a task of one of these types for each of the first
targets. In a runner it calls the real handler's `build_param` and `is_finished`, which only read.
So users' code is imported nowhere else, and is stopped if it takes too long.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from drumline.domain.policy import OnDeath
from drumline.domain.preview import ASYNC_TYPE, SYNC_TYPE, TARGET_TYPE, PreviewParam
from drumline.domain.release import RESULT_LIMIT
from drumline.domain.states import TaskState
from drumline.domain.task import DueTask, TaskBody, encode_task_body
from drumline.errors import WrongUse
from drumline.handlers.base import Change, Handler, RegisteredHandler
from drumline.handlers.registry import register, registry
from drumline.task import Task


class Preview(Handler):
    """For handlers with plain methods."""

    target_type: ClassVar[str] = TARGET_TYPE
    types: ClassVar[tuple[str, ...]] = (SYNC_TYPE,)
    on_death: ClassVar[OnDeath] = OnDeath.FAIL
    param_type: ClassVar[Any] = PreviewParam

    def process(self, task: Task) -> dict[str, Any]:
        """Find out what a task of a batch would change. Used by `batch submit --dry-run`."""
        registered, inner = _previewed_task(task)
        change = _capture(inner, registered.handler.build_param(inner))
        return _result(change, registered.handler.is_finished(inner))


class AsyncPreview(Handler):
    """For handlers with async methods, which must run in the runner's event loop."""

    target_type: ClassVar[str] = TARGET_TYPE
    types: ClassVar[tuple[str, ...]] = (ASYNC_TYPE,)
    on_death: ClassVar[OnDeath] = OnDeath.FAIL
    param_type: ClassVar[Any] = PreviewParam

    async def process(self, task: Task) -> dict[str, Any]:
        """Find out what a task of a batch would change. Used by `batch submit --dry-run`."""
        registered, inner = _previewed_task(task)
        change = _capture(inner, await _resolved(registered.handler.build_param(inner)))
        return _result(change, await _resolved(registered.handler.is_finished(inner)))


def _previewed_task(task: Task) -> tuple[RegisteredHandler, Task]:
    """The handler of the task that the batch would submit, and that task."""
    param = msgspec.convert(task.param, PreviewParam)
    key = f"{param.target_type}/{param.type}"
    if key not in registry:
        raise WrongUse(reason=f"this worker cannot run {key}")
    body = TaskBody(
        region=task.region,
        target_id=param.target_id,
        target_name=param.target_name,
        target_env=param.target_env,
        instance_id=None,
        param=None if param.param is None else msgspec.json.encode(param.param).decode(),
        before_update=None,
        after_update=None,
        batch=msgspec.msgpack.encode(param.batch),
        run=None,
    )
    due = DueTask(
        id=task.id,
        version=0,
        status=TaskState.PENDING,
        type=param.type,
        target_type=param.target_type,
        priority=0,
        due_at=0,
        timeout_ms=0,
        batch_id=None,
        attempt=0,
        retry_time=0,
        failures=0,
        deaths=0,
        env=param.batch.env,
        retry=None,
        job_id=None,
        body=encode_task_body(body),
    )
    return registry[key], Task(due)


def _capture(inner: Task, change: Any) -> Change | None:
    if change is None:
        return None
    if not isinstance(change, Change):
        raise WrongUse(reason=f"build_param must return a Change or None, not {change!r}")
    # A real task also gets it back through JSON.
    before, after = (msgspec.json.decode(msgspec.json.encode(half)) for half in change)
    inner.captured(before, after)
    return Change(before, after)


async def _resolved(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


def _result(change: Change | None, finished: Any) -> dict[str, Any]:
    before, after = (None, None) if change is None else change
    result = {"captures": change is not None, "finished": bool(finished)}
    complete = {**result, "before": before, "after": after}
    if len(msgspec.json.encode(complete)) <= RESULT_LIMIT:
        return complete
    return {**result, "before": _shorten(before), "after": _shorten(after)}


def _shorten(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return f"{text[:1000]}… ({len(text)} characters)"


register(TARGET_TYPE, Preview)
register(TARGET_TYPE, AsyncPreview)
