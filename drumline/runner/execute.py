"""Running one task: capture, already finished?, process or roll back. Sync and async alike.

The life of a task is written once, as a generator that yields what its handler returned: the
sync runner sends it back as it is, the async one awaits it first.
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

LONGEST_WAIT = 30 * 86400
CAPTURE_LIMIT = 1024 * 1024
"""Bytes of JSON that build_param may find, each for before and after."""


class Stopped(BaseException):
    """Raised inside a handler to ask it to stop. Not an Exception: `except Exception` in a
    handler must not swallow it."""


class RunLost(Exception):
    """The task was given to someone else meanwhile: leave everything as it is."""


def task_steps(
    task: Task, registered: RegisteredHandler, capture: Callable[[str, str], Any]
) -> TaskSteps:
    """A task's life in a worker. What it yields is to be resolved and sent back."""
    handler = registered.handler
    if task.status is TaskState.ROLLBACK_PENDING:
        return (yield handler.rollback(task))
    if registered.spec.captures and task.body.before_update is None:
        change = yield handler.build_param(task)
        if change is not None:
            before, after = _both(change)
            if not (yield capture(before, after)):
                raise RunLost
            task.captured(msgspec.json.decode(before), msgspec.json.decode(after))
    if (yield handler.is_finished(task)):
        return None
    return (yield handler.process(task))


def run_steps(steps: TaskSteps) -> Any:
    """Run a sync life to its end."""
    value = None
    try:
        while True:
            value = steps.send(value)
            if hasattr(value, "__await__"):
                # Taken for an answer, it would be a true one: "already finished".
                raise _never_awaited(value)
    except StopIteration as end:
        return end.value


async def run_steps_async(steps: TaskSteps) -> Any:
    """Run a life whose steps may have to be awaited."""
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
    """A handler's result; and if it only began something, for how long it may be waited for."""
    if not isinstance(value, WaitForCallback):
        return value, None
    if not registered.spec.callbacks:
        raise WrongUse(
            reason="the handler returned WaitForCallback and does not ask for callbacks=True"
        )
    if task.status is TaskState.ROLLBACK_PENDING:
        raise WrongUse(reason="a rollback cannot wait for a callback")
    seconds = value.seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise WrongUse(reason=f"WaitForCallback needs a number of seconds, not {seconds!r}")
    if not 0 < seconds <= LONGEST_WAIT:  # and no NaN either
        raise WrongUse(reason=f"WaitForCallback takes 0 to {LONGEST_WAIT} seconds, not {seconds}")
    return value.result, float(seconds)


def failure_details(error: BaseException) -> Failure | None:
    """What an error says besides its text."""
    if not isinstance(error, HandlerFailed):
        return None
    try:
        result = encode_result(error.result)
    except WrongUse:
        result = None  # what went wrong is more than what does not fit
    cause = error.cause if isinstance(error.cause, Cause) else None
    return Failure(bool(error.final), cause, result, error.wait)


def encode_result(value: object) -> str | None:
    """A handler's return value as JSON, or a clear error."""
    return None if value is None else _json(value, "the handler's return value", RESULT_LIMIT)


def format_error(error: BaseException) -> str:
    """What an operator needs to see of a handler's error. It must not fail itself, whatever the
    error: an exception may be unable to say what it is, or say it in letters that no text has."""
    if isinstance(error, DrumlineError):
        text = str(error)  # a sentence for people; where in the code it was said helps nobody
    else:
        *_, summary = traceback.format_exception_only(error)
        text = summary + "".join(traceback.format_exception(error))
    return clip_info(text.encode(errors="backslashreplace").decode()) or ""


def _both(change: Any) -> tuple[str, str]:
    if not isinstance(change, Change):
        raise WrongUse(reason=f"build_param must return a Change or None, not {change!r}")
    return (
        _json(change.before, "what build_param found before", CAPTURE_LIMIT),
        _json(change.after, "what build_param gave as after", CAPTURE_LIMIT),
    )


def _json(value: object, what: str, limit: int) -> str:
    try:
        document = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongUse(reason=f"{what} does not fit into JSON: {error}") from None
    if len(document) > limit:
        raise WrongUse(reason=f"{what} has {len(document)} bytes of JSON, at most {limit} are kept")
    return document.decode()


def _never_awaited(value: Any) -> WrongUse:
    if hasattr(value, "close"):
        value.close()
    return WrongUse(
        reason="a method of the handler returned something to be awaited without being"
        " `async def` itself"
    )
