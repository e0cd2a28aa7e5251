"""How a run is stopped: interrupted, then its stack is dumped, then killed with its children."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from drumline.runner.frames import CancelTask, RunEnded, StackReport
from tests.process.runner_harness import Harness, due_task, is_dead


def test_interrupt_stops_a_sync_task_that_catches_every_exception(
    keeper: Harness,
) -> None:
    keeper.runner.sync.send_tasks([due_task(1, "stubborn"), due_task(2, "echo")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.interrupt_sync_task()
    assert keeper.frame(RunEnded, 1).stopped
    assert keeper.frame(RunEnded, 2).ok


def test_task_that_turns_the_interrupt_into_an_error_counts_as_stopped(
    keeper: Harness,
) -> None:
    keeper.runner.sync.send_tasks([due_task(1, "turns_stop_into_error")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.interrupt_sync_task()
    assert keeper.frame(RunEnded, 1).stopped


def test_interrupt_between_two_tasks_affects_neither(keeper: Harness) -> None:
    keeper.runner.sync.send_tasks([due_task(1, "echo")])
    keeper.frame(RunEnded, 1)
    keeper.until(lambda: not keeper.running())
    keeper.runner.interrupt_sync_task()
    keeper.runner.sync.send_tasks([due_task(2, "echo")])
    assert keeper.frame(RunEnded, 2).ok


def test_interrupts_at_any_time_do_not_break_the_runner(keeper: Harness) -> None:
    """Repeated interrupts during tasks of microseconds; each task still ends exactly once."""
    total = 3000
    keeper.runner.sync.send_tasks([due_task(i, "raises", "value") for i in range(1, total + 1)])

    def interrupt() -> bool:
        keeper.runner.interrupt_sync_task()
        return len(keeper.ended()) == total

    keeper.until(interrupt, 60)
    assert [frame.task_id for frame in keeper.ended()] == list(range(1, total + 1))
    assert not is_dead(keeper.runner.pid)


def test_stack_of_a_loop_in_c_can_be_dumped_twice(keeper: Harness) -> None:
    keeper.runner.sync.send_tasks([due_task(1, "c_loop")])
    keeper.until(lambda: 1 in keeper.running())
    for _ in range(2):
        keeper.runner.dump_stack(keeper.runner.pid)
        keeper.until(lambda: "in c_loop" in keeper.runner.dumped_stack())
    assert keeper.runner.dumped_stack().count("in c_loop") == 1


def test_stack_of_a_blocked_event_loop_can_be_dumped(keeper: Harness) -> None:
    keeper.runner.async_.send_tasks([due_task(1, "holds_up_the_loop")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.dump_stack(keeper.ready.loop_thread)
    keeper.until(lambda: "in holds_up_the_loop" in keeper.runner.dumped_stack())


@pytest.mark.parametrize("name", ["forever", "forever_async"])
def test_stopped_task_reports_its_stack(keeper: Harness, name: str) -> None:
    pipe = keeper.runner.async_ if "async" in name else keeper.runner.sync
    pipe.send_tasks([due_task(1, name)])
    keeper.until(lambda: 1 in keeper.running())
    if "async" in name:
        pipe.send(CancelTask(1))
    else:
        keeper.until(lambda: _asked_for_stack(keeper))
    text = keeper.frame(StackReport, 1).text
    assert f"in {name}\n" in text
    assert "executors.py" not in text, "the stack contains frames of the runner"
    assert keeper.frame(RunEnded, 1).stopped


def test_task_that_ignores_signals_is_killed(keeper: Harness) -> None:
    keeper.runner.sync.send_tasks([due_task(1, "c_loop")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.interrupt_sync_task()
    keeper.runner.terminate()
    keeper.runner.kill()
    assert keeper.runner.exit_code == -signal.SIGKILL
    assert is_dead(keeper.runner.pid)
    assert keeper.running() == {1}, "the black box has the running task"


def test_children_are_killed_with_the_run_in_any_session(keeper: Harness, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    keeper.runner.sync.send_tasks([due_task(1, "starts_children", str(pids))])
    keeper.until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    found = [int(pid) for pid in pids.read_text().split()]
    assert not any(is_dead(pid) for pid in found)
    keeper.runner.kill()
    assert all(is_dead(pid) for pid in found)


def test_child_program_inherits_no_pipe_of_the_runner(keeper: Harness, tmp_path: Path) -> None:
    keeper.runner.sync.send_tasks([due_task(1, "lists_descriptors", str(tmp_path / "open"))])
    assert keeper.frame(RunEnded).text == "[]"


def _asked_for_stack(keeper: Harness) -> StackReport | None:
    """Ask the runner for the task's stack; the stack, once it has come."""
    keeper.runner.interrupt_sync_task()
    return keeper.found(StackReport, 1)
