"""A real runner process, driven over its pipe as a keeper drives it."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

import pytest

from drumline.runner.frames import CancelTask, CaptureStored, RunEnded, StoreCapture
from tests.process.runner_harness import HANDLERS, Harness, due_task, is_dead

# --- registration --------------------------------------------------------------------------------


def test_runner_reports_its_handlers_and_failed_imports(tmp_path: Path) -> None:
    keeper = Harness(tmp_path / "box", [HANDLERS, "tests.process.no_such_module"])
    try:
        specs = {spec.key: spec for spec in keeper.ready.manifest}
        assert specs["t.echo/t.echo"].is_async is False
        assert specs["t.gather/t.gather"].is_async is True
        assert "demo.noop/demo.noop" in specs
        (problem,) = keeper.ready.problems
        assert "tests.process.no_such_module" in problem
    finally:
        keeper.close()


# --- one task ------------------------------------------------------------------------------------


def test_a_task_returns_its_result_as_json(keeper: Harness) -> None:
    keeper.runner.sync.send_tasks([due_task(1, "echo", {"a": [1, "ä"]})])
    assert keeper.frame(RunEnded) == RunEnded(1, keeper.ended()[0].seconds, True, '{"a":[1,"ä"]}')
    keeper.until(lambda: not keeper.running())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("value", "ValueError: no good"),
        ("exit", "SystemExit: 3"),
        ("unprintable", "Unprintable"),  # its __str__ raises
        ("surrogate", "\\udc80"),  # no encoding has this text
        ("not_json", "does not fit into JSON"),
    ],
)
@pytest.mark.parametrize("executor", ["sync", "async_"])
def test_any_exception_of_a_handler_fails_its_task_only(
    keeper: Harness, executor: str, how: str, words: str
) -> None:
    suffix = "" if executor == "sync" else "_async"
    two = [due_task(1, f"raises{suffix}", how), due_task(2, f"echo{suffix}", "after it")]
    getattr(keeper.runner, executor).send_tasks(two)
    first, second = keeper.frame(RunEnded, 1), keeper.frame(RunEnded, 2)
    assert (first.ok, first.stopped) == (False, False)
    assert words in (first.text or "")
    assert second.text == '"after it"'


def test_sync_handler_that_returns_an_awaitable_fails(keeper: Harness) -> None:
    keeper.runner.sync.send_tasks([due_task(1, "raises", "awaitable")])
    ended = keeper.frame(RunEnded)
    assert not ended.ok
    assert "async def" in (ended.text or "")


# --- tickets -------------------------------------------------------------------------------------


def test_task_is_either_started_or_taken_back_under_load(keeper: Harness) -> None:
    """Every task is run or taken back, and no task is both."""
    pipe = keeper.runner.sync
    numbers = count(1)
    sent: set[int] = set()
    taken: list[int] = []

    def begun(first: int) -> bool:
        return bool(keeper.ended()) and keeper.ended()[-1].task_id >= first

    for _ in range(400):
        ids = [next(numbers) for _ in range(50)]
        pipe.send_tasks([due_task(i, "echo", i) for i in ids])
        sent.update(ids)
        # For one in three bundles at once, otherwise while the runner works on it.
        if ids[0] % 3:
            keeper.until(partial(begun, ids[0]))
        taken += pipe.take_back()
    keeper.until(lambda: len(keeper.ended()) + len(taken) == len(sent))
    run = [frame.task_id for frame in keeper.ended()]
    assert len(run) == len(set(run))
    assert set(run).isdisjoint(taken)
    assert set(run) | set(taken) == sent
    assert len(taken) > 100, "the race did not occur"
    assert len(run) > 100, "the race did not occur"


def test_task_sent_again_after_take_back_runs_with_its_new_fence(
    keeper: Harness, tmp_path: Path
) -> None:
    pipe, gate = keeper.runner.sync, tmp_path / "gate"
    pipe.send_tasks([due_task(1, "wait_for_file", str(gate)), due_task(2, "fence", version=10)])
    keeper.until(lambda: keeper.running() == {1})
    assert pipe.take_back() == [2]
    # The runner has read none of these frames yet: it is running task 1.
    pipe.send_tasks([due_task(2, "fence", version=12)])
    gate.touch()
    assert keeper.frame(RunEnded, 2).text == "13"


# --- capture -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["captures", "captures_async"])
def test_process_waits_until_the_capture_is_committed(keeper: Harness, name: str) -> None:
    pipe = keeper.runner.sync if name == "captures" else keeper.runner.async_
    pipe.send_tasks([due_task(7, name)])
    found = keeper.frame(StoreCapture)
    assert (found.task_id, found.before, found.after) == (7, '{"az":"a"}', '{"az":"b"}')
    for _ in range(20):  # without CaptureStored it does not continue
        keeper.until(lambda: True)
        assert not keeper.ended()
    pipe.send(CaptureStored(7, held=True))
    assert keeper.frame(RunEnded).text == '[{"az":"a"},{"az":"b"}]'


@pytest.mark.parametrize("name", ["captures", "captures_async"])
def test_task_that_is_no_longer_held_is_not_processed(keeper: Harness, name: str) -> None:
    pipe = keeper.runner.sync if name == "captures" else keeper.runner.async_
    pipe.send_tasks([due_task(7, name)])
    keeper.frame(StoreCapture)
    pipe.send(CaptureStored(7, held=False))
    ended = keeper.frame(RunEnded)
    assert (ended.ok, ended.text) == (False, "the task was acquired by another worker")


def test_task_waiting_for_its_capture_can_be_stopped_and_the_pipe_stays_in_sync(
    keeper: Harness,
) -> None:
    sync, async_ = keeper.runner.sync, keeper.runner.async_
    sync.send_tasks([due_task(1, "captures", "x" * 900_000)])
    async_.send_tasks([due_task(2, "captures_async")])
    keeper.frame(StoreCapture, 1)
    keeper.frame(StoreCapture, 2)
    keeper.runner.interrupt_sync_task()
    async_.send(CancelTask(2))
    assert keeper.frame(RunEnded, 1).stopped
    assert keeper.frame(RunEnded, 2).stopped
    # These answers come after the runs have ended and are ignored: the next runs send StoreCapture.
    sync.send(CaptureStored(1, held=False))
    async_.send(CaptureStored(2, held=False))
    keeper.frames.clear()
    sync.send_tasks([due_task(1, "captures", version=2)])
    async_.send_tasks([due_task(2, "captures_async", version=2)])
    keeper.frame(StoreCapture, 1)
    keeper.frame(StoreCapture, 2)
    sync.send(CaptureStored(1, held=True))
    async_.send(CaptureStored(2, held=True))
    assert keeper.frame(RunEnded, 1).ok
    assert keeper.frame(RunEnded, 2).ok


# --- the async executor ---------------------------------------------------------------------


def test_async_tasks_run_at_the_same_time(keeper: Harness) -> None:
    """Each of them ends only when all 300 have started."""
    keeper.runner.async_.send_tasks([due_task(i, "gather", 300) for i in range(1, 301)])
    keeper.until(lambda: len(keeper.ended()) == 300)
    assert all(frame.ok for frame in keeper.ended())


def test_a_sync_task_does_not_hold_up_the_loop(keeper: Harness, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    keeper.runner.sync.send_tasks([due_task(1, "wait_for_file", str(gate))])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.async_.send_tasks([due_task(2, "echo_async", 2)])
    assert keeper.frame(RunEnded, 2).ok
    # The executor erases the record of task 2 after it has sent the frame.
    keeper.until(lambda: keeper.running() == {1})
    gate.touch()
    assert keeper.frame(RunEnded, 1).ok


def test_only_the_cancelled_async_task_is_stopped(keeper: Harness) -> None:
    keeper.runner.async_.send_tasks([due_task(i, "forever_async") for i in (1, 2)])
    keeper.until(lambda: keeper.running() == {1, 2})
    keeper.runner.async_.send(CancelTask(1))
    assert keeper.frame(RunEnded, 1).stopped
    keeper.runner.async_.send_tasks([due_task(3, "echo_async")])
    keeper.frame(RunEnded, 3)
    assert keeper.running() == {2}


def test_a_task_that_cancels_itself_has_failed_and_was_not_stopped(keeper: Harness) -> None:
    """A stopped task is given back uncharged: it would be repeated for ever."""
    keeper.runner.async_.send_tasks([due_task(1, "cancels_itself")])
    ended = keeper.frame(RunEnded)
    assert (ended.ok, ended.stopped) == (False, False)
    assert "CancelledError" in (ended.text or "")


def test_sys_exit_in_a_subtask_ends_the_runner_at_once(keeper: Harness) -> None:
    keeper.runner.async_.send_tasks([due_task(1, "forever_async"), due_task(2, "exits_in_subtask")])
    keeper.until(lambda: is_dead(keeper.runner.pid))
    assert keeper.running() == {1, 2}


def test_task_that_ends_in_the_same_loop_iteration_as_sys_exit_is_reported(keeper: Harness) -> None:
    keeper.runner.async_.send_tasks(
        [due_task(1, "exits_in_subtask"), due_task(2, "echo_async", "done")]
    )
    keeper.until(lambda: is_dead(keeper.runner.pid))
    assert keeper.frame(RunEnded, 2).text == '"done"'
    assert keeper.running() == {1}
