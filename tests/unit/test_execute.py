"""The outcome of a run: a result, a wait for a callback, or an error with a text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from drumline.domain.release import INFO_LIMIT, RESULT_LIMIT
from drumline.domain.states import Cause, TaskState
from drumline.errors import WrongUse
from drumline.handlers.base import (
    Change,
    Handler,
    HandlerFailed,
    NoRetry,
    RegisteredHandler,
    WaitForCallback,
    handler_specs,
)
from drumline.runner.execute import (
    CAPTURE_LIMIT,
    encode_result,
    failure_details,
    format_error,
    run_steps,
    task_steps,
    unpack_result,
)
from drumline.task import Task
from tests.unit.changed_target import Async, Sync, Target, new_task

# --- what a handler may return -------------------------------------------------------------------


def captured(change: object) -> Any:
    class Captures(Handler):
        target_type = "t"
        types = ("t",)

        def build_param(self, task: Task) -> Any:
            return change

        def process(self, task: Task) -> str:
            return "done"

    target, captures = Target(), Captures()
    registered = RegisteredHandler(handler_specs(captures, "")[0], captures)
    return run_steps(task_steps(new_task(), registered, target.commit)), target.events


def test_nothing_to_roll_back_commits_nothing() -> None:
    assert captured(None) == ("done", [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"before": 1}, "build_param must return a Change or None, not {'before': 1}"),
        ((1, 2), "build_param must return a Change or None, not (1, 2)"),
        (Change(object(), 1), "`before` of the Change from build_param does not fit into JSON"),
        (Change(1, object()), "`after` of the Change from build_param does not fit into JSON"),
        (Change("x" * CAPTURE_LIMIT, 1), f"{CAPTURE_LIMIT + 2} bytes of JSON"),
    ],
)
def test_a_change_that_cannot_be_stored_is_refused_before_process(change: Any, words: str) -> None:
    with pytest.raises(WrongUse) as caught:
        captured(change)
    assert words in str(caught.value)


def test_a_result_is_stored_as_json() -> None:
    assert encode_result(None) is None
    assert encode_result(False) == "false"
    assert encode_result({"a": (1, 2)}) == '{"a":[1,2]}'
    assert encode_result("x" * (RESULT_LIMIT - 2)) == '"' + "x" * (RESULT_LIMIT - 2) + '"'


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            "x" * (RESULT_LIMIT - 1),
            f"{RESULT_LIMIT + 1} bytes of JSON, the limit is {RESULT_LIMIT}",
        ),
        ("ä" * (RESULT_LIMIT // 2), f"{RESULT_LIMIT + 2} bytes of JSON"),
        (object(), "does not fit into JSON"),
        ({(1, 2): 3}, "does not fit into JSON"),
        ("\udc80", "does not fit into JSON"),
        ((n for n in range(3)), "does not fit into JSON"),
    ],
)
def test_a_result_that_cannot_be_stored_is_refused(value: object, words: str) -> None:
    with pytest.raises(WrongUse) as caught:
        encode_result(value)
    assert "the handler's return value" in str(caught.value)
    assert words in str(caught.value)


def test_a_result_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(WrongUse, match="does not fit into JSON"):
        encode_result(value)


def test_a_coroutine_in_the_sync_executor_is_an_error_and_not_a_true_value() -> None:
    class Sneaky(Sync):
        def is_finished(self, task: Task) -> Any:
            return Async(self.target).is_finished(task)

    target = Target()
    sneaky = Sneaky(target)
    with pytest.raises(WrongUse, match="async def"):
        run_steps(
            task_steps(
                new_task(), RegisteredHandler(handler_specs(sneaky, "")[0], sneaky), target.commit
            )
        )
    assert target.value == "old"


# --- what an operator sees -----------------------------------------------------------------------


def test_the_text_of_an_error_has_its_message_first_and_then_the_traceback() -> None:
    try:
        raise ValueError("no good")
    except ValueError as error:
        text = format_error(error)
    assert text.startswith("ValueError: no good\nTraceback")
    assert "test_execute.py" in text


def test_the_text_of_wrong_use_has_no_traceback() -> None:
    assert format_error(WrongUse(reason="write it so")) == "write it so"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I will not say")


@pytest.mark.parametrize(
    "error",
    [
        Mute(),
        ValueError("\udc80"),
        ValueError("x" * 10**6),
        WrongUse(reason="\udc80"),
        SystemExit(3),
    ],
    ids=["mute", "surrogates", "long", "wrong use", "exit"],
)
def test_every_error_has_a_text_that_can_be_sent_and_stored(error: BaseException) -> None:
    text = format_error(error)
    assert 0 < len(text.encode()) <= INFO_LIMIT
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(text)) == text


# --- the task itself -----------------------------------------------------------------------------


def test_a_task_shows_what_was_submitted_and_its_fence() -> None:
    task = new_task(attempt=3, param='{"to": ["a"]}')
    assert task.param == {"to": ["a"]}
    assert (task.id, task.attempt, task.fence, task.target_id) == (1, 3, 5, "target")
    assert task.param is task.param, "decoded once"
    assert (task.batch, task.before_update) == (None, None)


def test_every_log_line_has_the_ids_of_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    new_task().log("Half way.", done=5, left=object)
    line = msgspec.json.decode(capsys.readouterr().err)
    assert (line["event"], line["task_id"], line["done"]) == ("Half way.", 1, 5)


# --- what is only begun, and what no retry mends -------------------------------------------------


class Begins(Handler):
    target_type = "t"
    types = ("t",)
    callbacks = True

    def process(self, task: Task) -> Any:
        return WaitForCallback(30, {"accepted": True})


def test_a_run_can_wait_for_a_callback() -> None:
    registered = RegisteredHandler(handler_specs(Begins(), "o")[0], Begins())
    assert registered.spec.callbacks
    task = new_task()
    assert unpack_result(WaitForCallback(30, {"a": 1}), task, registered) == ({"a": 1}, 30.0)
    assert unpack_result({"a": 1}, task, registered) == ({"a": 1}, None)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 31 * 86400, "5", None, True])
def test_the_callback_timeout_must_be_a_number_of_seconds(seconds: Any) -> None:
    registered = RegisteredHandler(handler_specs(Begins(), "o")[0], Begins())
    with pytest.raises(WrongUse, match="WaitForCallback"):
        unpack_result(WaitForCallback(seconds), new_task(), registered)


def test_only_handlers_with_callbacks_may_wait_and_no_rollback() -> None:
    deaf = RegisteredHandler(handler_specs(Sync(Target()), "o")[0], Sync(Target()))
    with pytest.raises(WrongUse, match="callbacks=True"):
        unpack_result(WaitForCallback(30), new_task(), deaf)
    registered = RegisteredHandler(handler_specs(Begins(), "o")[0], Begins())
    with pytest.raises(WrongUse, match="a rollback cannot wait"):
        unpack_result(WaitForCallback(30), new_task(status=TaskState.ROLLBACK_PENDING), registered)


def test_an_error_can_forbid_retries_and_carry_a_result() -> None:
    failure = failure_details(NoRetry("there is no such account"))
    assert failure is not None and (failure.final, failure.cause, failure.result) == (
        True, None, None,
    )  # fmt: skip

    class Timed(HandlerFailed):
        cause = Cause.TIMEOUT
        result = {"status_code": None}  # noqa: RUF012  # an instance has its own elsewhere

    failure = failure_details(Timed())
    assert failure is not None and (failure.final, failure.cause) == (False, Cause.TIMEOUT)
    assert failure.result == '{"status_code":null}'
    assert failure_details(ValueError()) is None


def test_a_result_that_does_not_fit_does_not_hide_the_failure() -> None:
    error = NoRetry("no")
    for unfit in (object(), "x" * (RESULT_LIMIT + 1)):
        error.result = unfit
        failure = failure_details(error)
        assert failure is not None and failure.final and failure.result is None
