"""The life of a task inside a worker: what is called, in which order, and how it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from drumline.domain.states import TaskState
from drumline.handlers.base import Handler, RegisteredHandler, handler_specs
from drumline.runner.execute import RunLost, Stopped, run_steps, run_steps_async, task_steps
from drumline.task import Task
from tests.unit.changed_target import Async, Sync, Target, new_task

Lives = Callable[[Target, Task], Any]


def _live(target: Target, task: Task) -> Any:
    handler = Sync(target)
    return run_steps(
        task_steps(
            task, RegisteredHandler(handler_specs(handler, "here")[0], handler), target.commit
        )
    )


def _live_async(target: Target, task: Task) -> Any:
    handler = Async(target)
    steps = task_steps(
        task, RegisteredHandler(handler_specs(handler, "here")[0], handler), target.commit_async
    )
    return asyncio.run(run_steps_async(steps))


@pytest.fixture(params=[_live, _live_async], ids=["sync", "async"])
def live(request: pytest.FixtureRequest) -> Lives:
    lives: Lives = request.param
    return lives


# --- order ---------------------------------------------------------------------------------------


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
    with pytest.raises(RunLost):
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
    assert (
        run_steps(
            task_steps(new_task(), RegisteredHandler(handler_specs(plain, "")[0], plain), commit)
        )
        == "done"
    )


# --- being stopped -------------------------------------------------------------------------------


def test_a_stop_passes_through_a_handler_that_catches_every_exception() -> None:
    class Stubborn(Sync):
        def process(self, task: Task) -> Any:
            try:
                raise Stopped
            except Exception:
                return "caught"

    stubborn = Stubborn(Target())
    registered = RegisteredHandler(handler_specs(stubborn, "")[0], stubborn)
    with pytest.raises(Stopped):
        run_steps(task_steps(new_task(), registered, Target().commit))


def test_a_stray_stop_iteration_is_an_error_and_no_result() -> None:
    class Careless(Sync):
        def process(self, task: Task) -> Any:
            return next(iter(()))

    careless = Careless(Target())
    registered = RegisteredHandler(handler_specs(careless, "")[0], careless)
    with pytest.raises(RuntimeError, match="StopIteration"):
        run_steps(task_steps(new_task(), registered, Target().commit))
