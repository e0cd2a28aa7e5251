"""The life of a task inside a worker: what is called, in which order, and what it must not do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from drumline.domain.states import Cause, TaskState
from drumline.domain.task import Body, Due, encode_body
from drumline.domain.verdict import INFO_LIMIT, RESULT_LIMIT
from drumline.errors import WrongUse
from drumline.handlers.base import (
    Change,
    Handler,
    HandlerFailed,
    NoRetry,
    Registered,
    WaitForCallback,
    specs_of,
)
from drumline.runner.execute import (
    CAPTURE_LIMIT,
    NotOurs,
    Stopped,
    begun,
    drive,
    drive_async,
    error_text,
    failure_of,
    life,
    result_text,
)
from drumline.task import Task


class Target:
    """Something to be changed, and all that happened to it."""

    def __init__(self, value: Any = "old", finished: bool = False, ours: bool = True) -> None:
        self.value = value
        self.finished = finished
        self.ours = ours
        self.events: list[str] = []
        self.committed: tuple[str, str] | None = None

    def commit(self, before: str, after: str) -> bool:
        self.events.append("commit")
        if self.ours:
            self.committed = (before, after)
        return self.ours

    async def commit_async(self, before: str, after: str) -> bool:
        await asyncio.sleep(0)
        return self.commit(before, after)


class Sync(Handler):
    target_type = "t"
    types = ("t",)

    def __init__(self, target: Target) -> None:
        self.target = target

    def build_param(self, task: Task) -> Any:
        self.target.events.append("build_param")
        return Change(self.target.value, ("new", task.attempt))

    def is_finished(self, task: Task) -> bool:
        self.target.events.append("is_finished")
        return self.target.finished

    def process(self, task: Task) -> Any:
        self.target.events.append("process")
        self.target.value = "new"
        return {"before": task.before_update, "after": task.after_update}

    def rollback(self, task: Task) -> Any:
        self.target.events.append("rollback")
        self.target.value = task.before_update
        return "undone"


class Async(Handler):
    """The same, awaited."""

    target_type = "t"
    types = ("t",)

    def __init__(self, target: Target) -> None:
        self.same = Sync(target)

    async def build_param(self, task: Task) -> Any:
        await asyncio.sleep(0)
        return self.same.build_param(task)

    async def is_finished(self, task: Task) -> bool:
        await asyncio.sleep(0)
        return self.same.is_finished(task)

    async def process(self, task: Task) -> Any:
        await asyncio.sleep(0)
        return self.same.process(task)

    async def rollback(self, task: Task) -> Any:
        await asyncio.sleep(0)
        return self.same.rollback(task)


def new_task(
    *,
    status: TaskState = TaskState.PENDING,
    attempt: int = 1,
    param: str | None = None,
    before: str | None = None,
    after: str | None = None,
) -> Task:
    body = Body("here", "target", None, None, None, param, before, after, None, None)
    return Task(
        Due(
            id=1,
            version=4,
            status=status,
            type="t",
            target_type="t",
            priority=5,
            due_at=0,
            timeout_ms=1000,
            batch_id=None,
            attempt=attempt - 1,
            retry_time=0,
            failures=0,
            deaths=0,
            env=None,
            retry=None,
            job_id=None,
            body=encode_body(body),
        )
    )


Lives = Callable[[Target, Task], Any]


def _live(target: Target, task: Task) -> Any:
    handler = Sync(target)
    return drive(life(task, Registered(specs_of(handler, "here")[0], handler), target.commit))


def _live_async(target: Target, task: Task) -> Any:
    handler = Async(target)
    steps = life(task, Registered(specs_of(handler, "here")[0], handler), target.commit_async)
    return asyncio.run(drive_async(steps))


@pytest.fixture(params=[_live, _live_async], ids=["sync", "async"])
def live(request: pytest.FixtureRequest) -> Lives:
    lives: Lives = request.param
    return lives


# --- order -----------------------------------------------------------------------------------


def test_what_was_found_is_committed_before_anything_is_asked_or_changed(live: Lives) -> None:
    target = Target()
    result = live(target, new_task())
    assert target.events == ["build_param", "commit", "is_finished", "process"]
    assert target.committed == ('"old"', '["new",1]')
    assert result == {"before": "old", "after": ["new", 1]}, "as JSON has it, tuples are lists"


def test_what_is_finished_already_is_not_processed(live: Lives) -> None:
    target = Target(finished=True)
    assert live(target, new_task()) is None
    assert target.events == ["build_param", "commit", "is_finished"]
    assert target.value == "old"


def test_a_second_attempt_keeps_what_the_first_one_captured(live: Lives) -> None:
    target = Target("changed by the first attempt")
    result = live(target, new_task(attempt=2, before='"old"', after='["new",1]'))
    assert target.events == ["is_finished", "process"]
    assert result == {"before": "old", "after": ["new", 1]}


def test_a_state_that_is_null_was_captured_too(live: Lives) -> None:
    target = Target("changed by the first attempt")
    result = live(target, new_task(attempt=2, before="null", after="null"))
    assert target.events == ["is_finished", "process"]
    assert result == {"before": None, "after": None}


def test_a_rollback_calls_nothing_else_and_has_what_was_captured(live: Lives) -> None:
    target = Target("new")
    task = new_task(status=TaskState.ROLLBACK_PENDING, before='"old"')
    assert live(target, task) == "undone"
    assert target.events == ["rollback"]
    assert target.value == "old"


def test_a_task_that_is_no_longer_ours_changes_nothing(live: Lives) -> None:
    target = Target(ours=False)
    with pytest.raises(NotOurs):
        live(target, new_task())
    assert target.events == ["build_param", "commit"]
    assert target.value == "old"


def test_a_handler_that_captures_nothing_is_not_made_to() -> None:
    class Plain(Handler):
        target_type = "t"
        types = ("t",)

        def process(self, task: Task) -> str:
            return "done"

    def commit(before: str, after: str) -> bool:
        raise AssertionError("there is nothing to commit")

    plain = Plain()
    assert drive(life(new_task(), Registered(specs_of(plain, "")[0], plain), commit)) == "done"


# --- what a handler may return ---------------------------------------------------------------


def captured(change: object) -> Any:
    class Captures(Handler):
        target_type = "t"
        types = ("t",)

        def build_param(self, task: Task) -> Any:
            return change

        def process(self, task: Task) -> str:
            return "done"

    target, captures = Target(), Captures()
    registered = Registered(specs_of(captures, "")[0], captures)
    return drive(life(new_task(), registered, target.commit)), target.events


def test_nothing_to_roll_back_commits_nothing() -> None:
    assert captured(None) == ("done", [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"before": 1}, "build_param must return a Change or None, not {'before': 1}"),
        ((1, 2), "build_param must return a Change or None, not (1, 2)"),
        (Change(object(), 1), "what build_param found before does not fit into JSON"),
        (Change(1, object()), "what build_param gave as after does not fit into JSON"),
        (Change("x" * CAPTURE_LIMIT, 1), f"{CAPTURE_LIMIT + 2} bytes of JSON"),
    ],
)
def test_a_capture_that_cannot_be_kept_is_refused_before_process(change: Any, words: str) -> None:
    with pytest.raises(WrongUse) as caught:
        captured(change)
    assert words in str(caught.value)


def test_a_result_is_kept_as_json() -> None:
    assert result_text(None) is None
    assert result_text(False) == "false"
    assert result_text({"a": (1, 2)}) == '{"a":[1,2]}'
    assert result_text("x" * (RESULT_LIMIT - 2)) == '"' + "x" * (RESULT_LIMIT - 2) + '"'


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("x" * (RESULT_LIMIT - 1), f"{RESULT_LIMIT + 1} bytes of JSON, at most {RESULT_LIMIT}"),
        ("ä" * (RESULT_LIMIT // 2), f"{RESULT_LIMIT + 2} bytes of JSON"),
        (object(), "does not fit into JSON"),
        ({(1, 2): 3}, "does not fit into JSON"),
        ("\udc80", "does not fit into JSON"),
        ((n for n in range(3)), "does not fit into JSON"),
    ],
)
def test_a_result_that_cannot_be_kept_is_refused_clearly(value: object, words: str) -> None:
    with pytest.raises(WrongUse) as caught:
        result_text(value)
    assert "the handler's return value" in str(caught.value)
    assert words in str(caught.value)


def test_a_result_that_contains_itself_is_refused_clearly() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(WrongUse, match="does not fit into JSON"):
        result_text(value)


def test_a_coroutine_in_the_sync_lane_is_an_error_and_not_a_true_answer() -> None:
    class Sneaky(Sync):
        def is_finished(self, task: Task) -> Any:
            return Async(self.target).is_finished(task)

    target = Target()
    sneaky = Sneaky(target)
    with pytest.raises(WrongUse, match="async def"):
        drive(life(new_task(), Registered(specs_of(sneaky, "")[0], sneaky), target.commit))
    assert target.value == "old"


# --- being stopped ---------------------------------------------------------------------------


def test_a_stop_passes_through_a_handler_that_catches_every_exception() -> None:
    class Stubborn(Sync):
        def process(self, task: Task) -> Any:
            try:
                raise Stopped
            except Exception:
                return "caught"

    stubborn = Stubborn(Target())
    registered = Registered(specs_of(stubborn, "")[0], stubborn)
    with pytest.raises(Stopped):
        drive(life(new_task(), registered, Target().commit))


def test_a_stray_stop_iteration_is_an_error_and_no_result() -> None:
    class Careless(Sync):
        def process(self, task: Task) -> Any:
            return next(iter(()))

    careless = Careless(Target())
    registered = Registered(specs_of(careless, "")[0], careless)
    with pytest.raises(RuntimeError, match="StopIteration"):
        drive(life(new_task(), registered, Target().commit))


# --- what an operator sees -------------------------------------------------------------------


def test_an_error_is_told_first_and_explained_after() -> None:
    try:
        raise ValueError("no good")
    except ValueError as error:
        text = error_text(error)
    assert text.startswith("ValueError: no good\nTraceback")
    assert "test_execute.py" in text


def test_wrong_use_is_told_without_a_traceback() -> None:
    assert error_text(WrongUse(reason="write it so")) == "write it so"


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
def test_every_error_has_a_text_that_can_be_sent_and_kept(error: BaseException) -> None:
    text = error_text(error)
    assert 0 < len(text.encode()) <= INFO_LIMIT
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(text)) == text


# --- the task itself -------------------------------------------------------------------------


def test_a_task_shows_what_was_submitted_and_its_fence() -> None:
    task = new_task(attempt=3, param='{"to": ["a"]}')
    assert task.param == {"to": ["a"]}
    assert (task.id, task.attempt, task.fence, task.target_id) == (1, 3, 5, "target")
    assert task.param is task.param, "decoded once"
    assert (task.batch, task.before_update) == (None, None)


def test_a_log_line_carries_the_ids_whatever_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    new_task().log("Half way.", done=5, left=object)
    line = msgspec.json.decode(capsys.readouterr().err)
    assert (line["event"], line["task_id"], line["done"]) == ("Half way.", 1, 5)


# --- what is only begun, and what no retry mends ---------------------------------------------


class Begins(Handler):
    target_type = "t"
    types = ("t",)
    callbacks = True

    def process(self, task: Task) -> Any:
        return WaitForCallback(30, {"accepted": True})


def test_a_run_that_only_began_waits_to_be_called_back() -> None:
    registered = Registered(specs_of(Begins(), "o")[0], Begins())
    assert registered.spec.callbacks
    task = new_task()
    assert begun(WaitForCallback(30, {"a": 1}), task, registered) == ({"a": 1}, 30.0)
    assert begun({"a": 1}, task, registered) == ({"a": 1}, None)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 31 * 86400, "5", None, True])
def test_for_how_long_it_waits_is_a_number_of_seconds(seconds: Any) -> None:
    registered = Registered(specs_of(Begins(), "o")[0], Begins())
    with pytest.raises(WrongUse, match="WaitForCallback"):
        begun(WaitForCallback(seconds), new_task(), registered)


def test_only_who_asks_for_callbacks_may_wait_and_no_rollback() -> None:
    deaf = Registered(specs_of(Sync(Target()), "o")[0], Sync(Target()))
    with pytest.raises(WrongUse, match="callbacks=True"):
        begun(WaitForCallback(30), new_task(), deaf)
    registered = Registered(specs_of(Begins(), "o")[0], Begins())
    with pytest.raises(WrongUse, match="a rollback cannot wait"):
        begun(WaitForCallback(30), new_task(status=TaskState.ROLLBACK_PENDING), registered)


def test_an_error_may_say_that_no_retry_mends_it_and_what_is_to_be_kept() -> None:
    failure = failure_of(NoRetry("there is no such account"))
    assert failure is not None and (failure.final, failure.cause, failure.result) == (
        True, None, None,
    )  # fmt: skip

    class Timed(HandlerFailed):
        cause = Cause.TIMEOUT
        result = {"status_code": None}  # noqa: RUF012  # an instance has its own elsewhere

    failure = failure_of(Timed())
    assert failure is not None and (failure.final, failure.cause) == (False, Cause.TIMEOUT)
    assert failure.result == '{"status_code":null}'
    assert failure_of(ValueError()) is None


def test_a_result_that_does_not_fit_does_not_hide_the_failure() -> None:
    error = NoRetry("no")
    for unfit in (object(), "x" * (RESULT_LIMIT + 1)):
        error.result = unfit
        failure = failure_of(error)
        assert failure is not None and failure.final and failure.result is None
