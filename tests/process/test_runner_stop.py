"""How a run is stopped: asked first, then looked at, then killed with all that it started."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from drumline.runner.frames import CancelTask, RunEnded, StackReport
from tests.process.runner_harness import Harness, dead, due


def test_a_sync_task_is_asked_to_stop_even_if_it_catches_every_exception(
    keeper: Harness,
) -> None:
    keeper.runner.sync.send_tasks([due(1, "stubborn"), due(2, "echo")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.interrupt_sync_task()
    assert keeper.frame(RunEnded, 1).stopped
    assert keeper.frame(RunEnded, 2).ok


def test_a_task_that_turns_the_ask_into_an_error_was_stopped_all_the_same(
    keeper: Harness,
) -> None:
    keeper.runner.sync.send_tasks([due(1, "turns_stop_into_error")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.interrupt_sync_task()
    assert keeper.frame(RunEnded, 1).stopped


def test_an_ask_between_two_tasks_strikes_neither(keeper: Harness) -> None:
    keeper.runner.sync.send_tasks([due(1, "echo")])
    keeper.frame(RunEnded, 1)
    keeper.until(lambda: not keeper.running())
    keeper.runner.interrupt_sync_task()
    keeper.runner.sync.send_tasks([due(2, "echo")])
    assert keeper.frame(RunEnded, 2).ok


def test_asks_at_any_moment_never_break_the_runner(keeper: Harness) -> None:
    """Asks rain on tasks of microseconds; each task still ends exactly once."""
    total = 3000
    keeper.runner.sync.send_tasks([due(i, "raises", "value") for i in range(1, total + 1)])

    def rain() -> bool:
        keeper.runner.interrupt_sync_task()
        return len(keeper.ended()) == total

    keeper.until(rain, 60)
    assert [frame.task_id for frame in keeper.ended()] == list(range(1, total + 1))
    assert not dead(keeper.runner.pid)


def test_the_stack_of_a_loop_in_c_can_be_seen_and_seen_again(keeper: Harness) -> None:
    keeper.runner.sync.send_tasks([due(1, "c_loop")])
    keeper.until(lambda: 1 in keeper.running())
    for _ in range(2):
        keeper.runner.dump_stack(keeper.runner.pid)
        keeper.until(lambda: "in c_loop" in keeper.runner.dumped_stack())
    assert keeper.runner.dumped_stack().count("in c_loop") == 1


def test_the_stack_of_a_loop_that_is_held_up_can_be_seen(keeper: Harness) -> None:
    keeper.runner.async_.send_tasks([due(1, "holds_up_the_loop")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.dump_stack(keeper.ready.loop_thread)
    keeper.until(lambda: "in holds_up_the_loop" in keeper.runner.dumped_stack())


@pytest.mark.parametrize("name", ["forever", "forever_async"])
def test_a_task_that_is_asked_to_stop_says_where_it_was(keeper: Harness, name: str) -> None:
    pipe = keeper.runner.async_ if "async" in name else keeper.runner.sync
    pipe.send_tasks([due(1, name)])
    keeper.until(lambda: 1 in keeper.running())
    if "async" in name:
        pipe.send(CancelTask(1))
    else:
        keeper.until(lambda: _asked_for_stack(keeper))
    text = keeper.frame(StackReport, 1).text
    assert f"in {name}\n" in text
    assert "executors.py" not in text, "the runner's own frames are of no use to anybody"
    assert keeper.frame(RunEnded, 1).stopped


def test_a_task_that_ignores_everything_is_killed(keeper: Harness) -> None:
    keeper.runner.sync.send_tasks([due(1, "c_loop")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.interrupt_sync_task()
    keeper.runner.terminate()
    keeper.runner.kill()
    assert keeper.runner.exit_code == -signal.SIGKILL
    assert dead(keeper.runner.pid)
    assert keeper.running() == {1}, "the black box says who was running"


def test_children_die_with_the_run_in_whatever_session_they_are(
    keeper: Harness, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    keeper.runner.sync.send_tasks([due(1, "starts_children", str(pids))])
    keeper.until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    found = [int(pid) for pid in pids.read_text().split()]
    assert not any(dead(pid) for pid in found)
    keeper.runner.kill()
    assert all(dead(pid) for pid in found)


def test_a_program_that_a_task_starts_gets_none_of_the_runners_pipes(
    keeper: Harness, tmp_path: Path
) -> None:
    keeper.runner.sync.send_tasks([due(1, "lists_descriptors", str(tmp_path / "open"))])
    assert keeper.frame(RunEnded).text == "[]"


def _asked_for_stack(keeper: Harness) -> StackReport | None:
    """Ask the runner for the task's stack; the stack, once it has come."""
    keeper.runner.interrupt_sync_task()
    return keeper.found(StackReport, 1)
