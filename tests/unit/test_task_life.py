"""How a runner executes a task: which methods it calls, in which order, and how it is stopped."""

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

Run = Callable[[Target, Task], Any]


def _run(target: Target, task: Task) -> Any:
    handler = Sync(target)
    return run_steps(
        task_steps(
            task, RegisteredHandler(handler_specs(handler, "here")[0], handler), target.commit
        )
    )


def _run_async(target: Target, task: Task) -> Any:
    handler = Async(target)
    steps = task_steps(
        task, RegisteredHandler(handler_specs(handler, "here")[0], handler), target.commit_async
    )
    return asyncio.run(run_steps_async(steps))


@pytest.fixture(params=[_run, _run_async], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


# --- order ---------------------------------------------------------------------------------------


def test_the_captured_state_is_committed_before_is_finished_and_process(run: Run) -> None:
    target = Target()
    result = run(target, new_task())
    assert target.events == ["build_param", "commit", "is_finished", "process"]
    assert target.committed == ('"old"', '["new",1]')
    assert result == {"before": "old", "after": ["new", 1]}, "as JSON has it, tuples are lists"


def test_a_finished_target_is_not_processed(run: Run) -> None:
    target = Target(finished=True)
    assert run(target, new_task()) is None
    assert target.events == ["build_param", "commit", "is_finished"]
    assert target.value == "old"


def test_a_second_attempt_keeps_what_the_first_one_captured(run: Run) -> None:
    target = Target("changed by the first attempt")
    result = run(target, new_task(attempt=2, before='"old"', after='["new",1]'))
    assert target.events == ["is_finished", "process"]
    assert result == {"before": "old", "after": ["new", 1]}


def test_a_captured_state_may_be_null(run: Run) -> None:
    target = Target("changed by the first attempt")
    result = run(target, new_task(attempt=2, before="null", after="null"))
    assert target.events == ["is_finished", "process"]
    assert result == {"before": None, "after": None}


def test_a_rollback_calls_only_rollback_with_the_captured_state(run: Run) -> None:
    target = Target("new")
    task = new_task(status=TaskState.ROLLBACK_PENDING, before='"old"')
    assert run(target, task) == "undone"
    assert target.events == ["rollback"]
    assert target.value == "old"


def test_a_run_that_was_lost_changes_nothing(run: Run) -> None:
    target = Target(held=False)
    with pytest.raises(RunLost):
        run(target, new_task())
    assert target.events == ["build_param", "commit"]
    assert target.value == "old"


def test_a_handler_without_build_param_captures_nothing() -> None:
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


# --- stop ----------------------------------------------------------------------------------------


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


def test_a_stop_iteration_of_a_handler_is_an_error() -> None:
    class Careless(Sync):
        def process(self, task: Task) -> Any:
            return next(iter(()))

    careless = Careless(Target())
    registered = RegisteredHandler(handler_specs(careless, "")[0], careless)
    with pytest.raises(RuntimeError, match="StopIteration"):
        run_steps(task_steps(new_task(), registered, Target().commit))
