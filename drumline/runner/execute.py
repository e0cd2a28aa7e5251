"""Runs one task, sync or async: capture, check whether it is finished, process or roll back.

The steps of a task are written once, as a generator that yields what the handler returned. The
sync executor sends the value back as it is, the async executor awaits it first.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from drumline.domain.release import RESULT_LIMIT, clip_info
from drumline.domain.states import Cause, TaskState
from drumline.errors import DrumlineError, WrongUse
from drumline.handlers.base import Change, HandlerFailed, RegisteredHandler, WaitForCallback
from drumline.runner.frames import Failure
from drumline.task import Task

TaskSteps = Generator[Any, Any, Any]

MAX_CALLBACK_WAIT = 30 * 86400
CAPTURE_LIMIT = 1024 * 1024
"""Bytes of JSON in each half of the Change that build_param returns."""
RUN_LOST = "the task was acquired by another worker"


class Stopped(BaseException):
    """Raised inside a handler to stop it. Not an Exception: `except Exception` in a handler must
    not swallow it."""


class RunLost(Exception):
    """Another worker has acquired the task: change nothing more."""


def task_steps(
    task: Task, registered: RegisteredHandler, capture: Callable[[str, str], Any]
) -> TaskSteps:
    """The steps of a task. Each yielded value must be sent back, awaited first if need be."""
    handler = registered.handler
    if task.status is TaskState.ROLLBACK_PENDING:
        return (yield handler.rollback(task))
    if registered.spec.captures and task.body.before_update is None:
        change = yield handler.build_param(task)
        if change is not None:
            before, after = _encode_change(change)
            if not (yield capture(before, after)):
                raise RunLost
            task.captured(msgspec.json.decode(before), msgspec.json.decode(after))
    if (yield handler.is_finished(task)):
        return None
    return (yield handler.process(task))


def run_steps(steps: TaskSteps) -> Any:
    """Run the steps of a sync task."""
    value = None
    try:
        while True:
            value = steps.send(value)
            if hasattr(value, "__await__"):
                # As a return value it would be true: is_finished would mean "finished".
                raise _never_awaited(value)
    except StopIteration as end:
        return end.value


async def run_steps_async(steps: TaskSteps) -> Any:
    """Run the steps of an async task."""
    value = None
    try:
        while True:
            value = steps.send(value)
            if hasattr(value, "__await__"):
                value = await value
    except StopIteration as end:
        return end.value


def unpack_result(
    value: object, task: Task, registered: RegisteredHandler
) -> tuple[object, float | None]:
    """The result in a handler's return value, and how many seconds to wait for a callback, if the
    handler asked for one."""
    if not isinstance(value, WaitForCallback):
        return value, None
    if not registered.spec.callbacks:
        raise WrongUse(
            reason="the handler returned WaitForCallback but is not registered with callbacks=True"
        )
    if task.status is TaskState.ROLLBACK_PENDING:
        raise WrongUse(reason="a rollback cannot wait for a callback")
    seconds = value.seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise WrongUse(reason=f"WaitForCallback needs a number of seconds, not {seconds!r}")
    if not 0 < seconds <= MAX_CALLBACK_WAIT:  # false for NaN too
        raise WrongUse(reason=f"WaitForCallback takes 0 to {MAX_CALLBACK_WAIT} s, not {seconds}")
    return value.result, float(seconds)


def failure_details(error: BaseException) -> Failure | None:
    """The data that an error carries besides its text."""
    if not isinstance(error, HandlerFailed):
        return None
    try:
        result = encode_result(error.result)
    except WrongUse:
        result = None  # the failure matters more than a result that cannot be stored
    cause = error.cause if isinstance(error.cause, Cause) else None
    return Failure(bool(error.final), cause, result, error.wait)


def encode_result(value: object) -> str | None:
    """A handler's return value as JSON, or an error that says why it cannot be stored."""
    return None if value is None else _encode(value, "the handler's return value", RESULT_LIMIT)


def format_error(error: BaseException) -> str:
    """The text of a handler's error for an operator. Never fails itself: `str()` of an exception
    may raise, or contain characters that UTF-8 cannot encode."""
    if isinstance(error, DrumlineError):
        text = str(error)  # a sentence for people, who need no traceback
    else:
        *_, summary = traceback.format_exception_only(error)
        text = summary + "".join(traceback.format_exception(error))
    return clip_info(text.encode(errors="backslashreplace").decode()) or ""


def _encode_change(change: Any) -> tuple[str, str]:
    if not isinstance(change, Change):
        raise WrongUse(reason=f"build_param must return a Change or None, not {change!r}")
    return (
        _encode(change.before, "`before` of the Change from build_param", CAPTURE_LIMIT),
        _encode(change.after, "`after` of the Change from build_param", CAPTURE_LIMIT),
    )


def _encode(value: object, what: str, limit: int) -> str:
    try:
        document = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongUse(reason=f"{what} does not fit into JSON: {error}") from None
    if len(document) > limit:
        raise WrongUse(reason=f"{what} has {len(document)} bytes of JSON, the limit is {limit}")
    return document.decode()


def _never_awaited(value: Any) -> WrongUse:
    if hasattr(value, "close"):
        value.close()
    return WrongUse(
        reason="a method of the handler returned an awaitable but is not `async def` itself"
    )
