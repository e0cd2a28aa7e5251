"""A real runner process, driven over its pipe as a keeper drives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from actors.loop import Loop
from actors.runner_process import RunnerProcess
from drumline import processes
from drumline.domain.states import TaskState
from drumline.domain.task import Body, Due, encode_body
from drumline.runner.frames import Cancel, Capture, Captured, Ended, Frame, Ready, Stack

HANDLERS = "tests.process.runner_handlers"
PATIENCE = 20.0

F = TypeVar("F", bound=Frame)


class Harness:
    """What a keeper is to its runner, without a database and without a dispatcher."""

    def __init__(self, blackbox: Path, imports: Sequence[str] = (HANDLERS,)) -> None:
        self.loop = Loop()
        self.frames: list[Frame] = []
        self.runner = RunnerProcess(self.loop, blackbox, imports, self.frames.append)
        self.ready = self.frame(Ready)

    def until(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Turn the loop until it is so, or fail."""
        reached = False

        def look() -> None:
            nonlocal reached
            if condition():
                reached = True
                self.loop.stop()

        watch = self.loop.call_every(0.002, look)
        limit = self.loop.call_later(seconds, self.loop.stop)
        self.loop._running = True
        self.loop.run()
        watch.cancel()
        limit.cancel()
        assert reached, f"not within {seconds} s; the runner sent {self.frames}"

    def found(self, kind: type[F], task_id: int | None = None) -> F | None:
        for frame in self.frames:
            if isinstance(frame, kind) and task_id in (None, getattr(frame, "task_id", None)):
                return frame
        return None

    def frame(self, kind: type[F], task_id: int | None = None) -> F:
        """The first such frame; waits for it."""
        self.until(lambda: self.found(kind, task_id))
        frame = self.found(kind, task_id)
        assert frame is not None
        return frame

    def ended(self) -> list[Ended]:
        return [frame for frame in self.frames if isinstance(frame, Ended)]

    def running(self) -> set[int]:
        return {entry.task_id for entry in self.runner.running()}

    def close(self) -> None:
        self.runner.kill()
        self.runner.close()
        self.loop._wake_in.close()
        self.loop._wake_out.close()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "box")
    yield harness
    harness.close()


def due(task_id: int, name: str, param: object = None, version: int = 0) -> Due:
    return Due(
        id=task_id,
        version=version,
        status=TaskState.PENDING,
        type=f"t.{name}",
        target_type=f"t.{name}",
        priority=5,
        due_at=0,
        timeout_ms=20_000,
        batch_id=None,
        attempt=0,
        retry_time=0,
        failures=0,
        deaths=0,
        env=None,
        retry=None,
        job_id=None,
        body=encode_body(
            Body(
                region="default",
                target_id=None,
                target_name=None,
                target_env=None,
                instance_id=None,
                param=msgspec.json.encode(param).decode(),
                before_update=None,
                after_update=None,
                batch=None,
                run=None,
            )
        ),
    )


def dead(pid: int) -> bool:
    return not processes.is_alive(pid)


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.005)


# --- what it announces -----------------------------------------------------------------------


def test_a_runner_announces_its_handlers_and_what_it_could_not_import(tmp_path: Path) -> None:
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


# --- one task --------------------------------------------------------------------------------


def test_a_task_returns_its_result_as_json(keeper: Harness) -> None:
    keeper.runner.sync.hand([due(1, "echo", {"a": [1, "ä"]})])
    assert keeper.frame(Ended) == Ended(1, keeper.ended()[0].seconds, True, '{"a":[1,"ä"]}')
    keeper.until(lambda: not keeper.running())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("value", "ValueError: no good"),
        ("exit", "SystemExit: 3"),
        ("mute", "Mute"),  # an exception that cannot say what it is
        ("letters", "\\udc80"),  # a text that no encoding has
        ("unfit", "does not fit into JSON"),
    ],
)
@pytest.mark.parametrize("lane", ["sync", "async_"])
def test_whatever_a_handler_raises_is_that_tasks_failure(
    keeper: Harness, lane: str, how: str, words: str
) -> None:
    suffix = "" if lane == "sync" else "_async"
    two = [due(1, f"raises{suffix}", how), due(2, f"echo{suffix}", "after it")]
    getattr(keeper.runner, lane).hand(two)
    first, second = keeper.frame(Ended, 1), keeper.frame(Ended, 2)
    assert (first.ok, first.stopped) == (False, False)
    assert words in (first.text or "")
    assert second.text == '"after it"'


def test_an_awaitable_that_nobody_awaits_is_not_taken_for_an_answer(keeper: Harness) -> None:
    keeper.runner.sync.hand([due(1, "raises", "awaitable")])
    ended = keeper.frame(Ended)
    assert not ended.ok
    assert "async def" in (ended.text or "")


# --- tickets ---------------------------------------------------------------------------------


def test_start_and_take_back_exclude_each_other_under_load(keeper: Harness) -> None:
    """Every task is either run or taken back, never both and never neither."""
    lane = keeper.runner.sync
    numbers = count(1)
    handed: set[int] = set()
    taken: list[int] = []

    def begun(first: int) -> bool:
        return bool(keeper.ended()) and keeper.ended()[-1].task_id >= first

    for _ in range(400):
        ids = [next(numbers) for _ in range(50)]
        lane.hand([due(i, "echo", i) for i in ids])
        handed.update(ids)
        # Sometimes at once, sometimes when the runner is in the middle of them.
        if ids[0] % 3:
            keeper.until(partial(begun, ids[0]))
        taken += lane.take_back()
    keeper.until(lambda: len(keeper.ended()) + len(taken) == len(handed))
    run = [frame.task_id for frame in keeper.ended()]
    assert len(run) == len(set(run))
    assert set(run).isdisjoint(taken)
    assert set(run) | set(taken) == handed
    assert len(taken) > 100, "the race was not run"
    assert len(run) > 100, "the race was not run"


def test_a_task_that_was_taken_back_and_comes_again_runs_under_its_new_fence(
    keeper: Harness, tmp_path: Path
) -> None:
    lane, gate = keeper.runner.sync, tmp_path / "gate"
    lane.hand([due(1, "wait_for_file", str(gate)), due(2, "fence", version=10)])
    keeper.until(lambda: keeper.running() == {1})
    assert lane.take_back() == [2]
    # The runner has read none of this yet: it is inside task 1.
    lane.hand([due(2, "fence", version=12)])
    gate.touch()
    assert keeper.frame(Ended, 2).text == "13"


# --- capture ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["captures", "captures_async"])
def test_process_waits_until_what_was_captured_is_committed(keeper: Harness, name: str) -> None:
    lane = keeper.runner.sync if name == "captures" else keeper.runner.async_
    lane.hand([due(7, name)])
    found = keeper.frame(Capture)
    assert (found.task_id, found.before, found.after) == (7, '{"az":"a"}', '{"az":"b"}')
    for _ in range(20):  # it does not go on by itself
        keeper.until(lambda: True)
        assert not keeper.ended()
    lane.send(Captured(7, ours=True))
    assert keeper.frame(Ended).text == '[{"az":"a"},{"az":"b"}]'


@pytest.mark.parametrize("name", ["captures", "captures_async"])
def test_a_task_that_is_no_longer_ours_is_not_processed(keeper: Harness, name: str) -> None:
    lane = keeper.runner.sync if name == "captures" else keeper.runner.async_
    lane.hand([due(7, name)])
    keeper.frame(Capture)
    lane.send(Captured(7, ours=False))
    ended = keeper.frame(Ended)
    assert (ended.ok, ended.text) == (False, "the task was given to another worker")


def test_a_task_that_waits_for_its_capture_can_be_stopped_and_the_pipe_stays_whole(
    keeper: Harness,
) -> None:
    sync, loops = keeper.runner.sync, keeper.runner.async_
    sync.hand([due(1, "captures", "x" * 900_000)])
    loops.hand([due(2, "captures_async")])
    keeper.frame(Capture, 1)
    keeper.frame(Capture, 2)
    keeper.runner.ask()
    loops.send(Cancel(2))
    assert keeper.frame(Ended, 1).stopped
    assert keeper.frame(Ended, 2).stopped
    # The answers come too late. They are nobody's: the next runs of the same tasks ask anew.
    sync.send(Captured(1, ours=False))
    loops.send(Captured(2, ours=False))
    keeper.frames.clear()
    sync.hand([due(1, "captures", version=2)])
    loops.hand([due(2, "captures_async", version=2)])
    keeper.frame(Capture, 1)
    keeper.frame(Capture, 2)
    sync.send(Captured(1, ours=True))
    loops.send(Captured(2, ours=True))
    assert keeper.frame(Ended, 1).ok
    assert keeper.frame(Ended, 2).ok


# --- the async lane --------------------------------------------------------------------------


def test_async_tasks_run_at_the_same_time(keeper: Harness) -> None:
    """Each of them ends only when all 300 have started."""
    keeper.runner.async_.hand([due(i, "gather", 300) for i in range(1, 301)])
    keeper.until(lambda: len(keeper.ended()) == 300)
    assert all(frame.ok for frame in keeper.ended())


def test_a_sync_task_does_not_hold_up_the_loop(keeper: Harness, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    keeper.runner.sync.hand([due(1, "wait_for_file", str(gate))])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.async_.hand([due(2, "echo_async", 2)])
    assert keeper.frame(Ended, 2).ok
    assert keeper.running() == {1}
    gate.touch()
    assert keeper.frame(Ended, 1).ok


def test_only_the_cancelled_async_task_is_stopped(keeper: Harness) -> None:
    keeper.runner.async_.hand([due(i, "forever_async") for i in (1, 2)])
    keeper.until(lambda: keeper.running() == {1, 2})
    keeper.runner.async_.send(Cancel(1))
    assert keeper.frame(Ended, 1).stopped
    keeper.runner.async_.hand([due(3, "echo_async")])
    keeper.frame(Ended, 3)
    assert keeper.running() == {2}


def test_a_task_that_cancels_itself_has_failed_and_was_not_stopped(keeper: Harness) -> None:
    """Otherwise it would be given back uncounted, and run again for ever."""
    keeper.runner.async_.hand([due(1, "cancels_itself")])
    ended = keeper.frame(Ended)
    assert (ended.ok, ended.stopped) == (False, False)
    assert "CancelledError" in (ended.text or "")


def test_an_exit_inside_a_tasks_own_subtask_ends_the_runner_at_once(keeper: Harness) -> None:
    keeper.runner.async_.hand([due(1, "forever_async"), due(2, "exits_in_subtask")])
    keeper.until(lambda: dead(keeper.runner.pid))
    assert keeper.running() == {1, 2}


def test_what_ended_in_the_turn_of_such_an_exit_has_ended(keeper: Harness) -> None:
    keeper.runner.async_.hand([due(1, "exits_in_subtask"), due(2, "echo_async", "done")])
    keeper.until(lambda: dead(keeper.runner.pid))
    assert keeper.frame(Ended, 2).text == '"done"'
    assert keeper.running() == {1}


# --- the ladder ------------------------------------------------------------------------------


def test_a_sync_task_is_asked_to_stop_even_if_it_catches_every_exception(
    keeper: Harness,
) -> None:
    keeper.runner.sync.hand([due(1, "stubborn"), due(2, "echo")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.ask()
    assert keeper.frame(Ended, 1).stopped
    assert keeper.frame(Ended, 2).ok


def test_a_task_that_turns_the_ask_into_an_error_was_stopped_all_the_same(
    keeper: Harness,
) -> None:
    keeper.runner.sync.hand([due(1, "turns_stop_into_error")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.ask()
    assert keeper.frame(Ended, 1).stopped


def test_an_ask_between_two_tasks_strikes_neither(keeper: Harness) -> None:
    keeper.runner.sync.hand([due(1, "echo")])
    keeper.frame(Ended, 1)
    keeper.until(lambda: not keeper.running())
    keeper.runner.ask()
    keeper.runner.sync.hand([due(2, "echo")])
    assert keeper.frame(Ended, 2).ok


def test_asks_at_any_moment_never_break_the_runner(keeper: Harness) -> None:
    """Asks rain on tasks of microseconds; each task still ends exactly once."""
    total = 3000
    keeper.runner.sync.hand([due(i, "raises", "value") for i in range(1, total + 1)])

    def rain() -> bool:
        keeper.runner.ask()
        return len(keeper.ended()) == total

    keeper.until(rain, 60)
    assert [frame.task_id for frame in keeper.ended()] == list(range(1, total + 1))
    assert not dead(keeper.runner.pid)


def test_the_stack_of_a_loop_in_c_can_be_seen_and_seen_again(keeper: Harness) -> None:
    keeper.runner.sync.hand([due(1, "c_loop")])
    keeper.until(lambda: 1 in keeper.running())
    for _ in range(2):
        keeper.runner.dump(keeper.runner.pid)
        keeper.until(lambda: "in c_loop" in keeper.runner.stack())
    assert keeper.runner.stack().count("in c_loop") == 1


def test_the_stack_of_a_loop_that_is_held_up_can_be_seen(keeper: Harness) -> None:
    keeper.runner.async_.hand([due(1, "holds_up_the_loop")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.dump(keeper.ready.loop_thread)
    keeper.until(lambda: "in holds_up_the_loop" in keeper.runner.stack())


@pytest.mark.parametrize("name", ["forever", "forever_async"])
def test_a_task_that_is_asked_to_stop_says_where_it_was(keeper: Harness, name: str) -> None:
    lane = keeper.runner.async_ if "async" in name else keeper.runner.sync
    lane.hand([due(1, name)])
    keeper.until(lambda: 1 in keeper.running())
    if "async" in name:
        lane.send(Cancel(1))
    else:
        keeper.until(lambda: keeper.runner.ask() or keeper.found(Stack, 1))
    text = keeper.frame(Stack, 1).text
    assert f"in {name}\n" in text
    assert "lanes.py" not in text, "the runner's own frames are of no use to anybody"
    assert keeper.frame(Ended, 1).stopped


def test_a_task_that_ignores_everything_is_killed(keeper: Harness) -> None:
    keeper.runner.sync.hand([due(1, "c_loop")])
    keeper.until(lambda: 1 in keeper.running())
    keeper.runner.ask()
    keeper.runner.terminate()
    keeper.runner.kill()
    assert keeper.runner.exit_code == -signal.SIGKILL
    assert dead(keeper.runner.pid)
    assert keeper.running() == {1}, "the black box says who was running"


def test_children_die_with_the_run_in_whatever_session_they_are(
    keeper: Harness, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    keeper.runner.sync.hand([due(1, "starts_children", str(pids))])
    keeper.until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    found = [int(pid) for pid in pids.read_text().split()]
    assert not any(dead(pid) for pid in found)
    keeper.runner.kill()
    assert all(dead(pid) for pid in found)


def test_a_program_that_a_task_starts_gets_none_of_the_runners_pipes(
    keeper: Harness, tmp_path: Path
) -> None:
    keeper.runner.sync.hand([due(1, "lists_descriptors", str(tmp_path / "open"))])
    assert keeper.frame(Ended).text == "[]"


# --- and its keeper --------------------------------------------------------------------------

PARENT = """
import os, sys, time
from pathlib import Path
from actors.loop import Loop
from actors.runner_process import RunnerProcess
from drumline import processes
from tests.process.test_runner import due, HANDLERS

processes.become_subreaper()
loop = Loop()
def received(frame):
    runner.sync.hand([due(1, sys.argv[2], sys.argv[3])])
    loop.call_every(0.005, tell)
told = False
def tell():
    global told
    if runner.running() and not told:
        told = True
        print(runner.pid, flush=True)
def order():
    if os.read(0, 1):
        runner.kill()
        print("killed", flush=True)
    loop.remove_reader(0)
loop.add_reader(0, order)
runner = RunnerProcess(loop, Path(sys.argv[1]), [HANDLERS], received)
loop.run()
"""


@pytest.fixture
def parent() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", ["forever", "c_loop"])
def test_a_runner_dies_with_its_keeper(
    parent: Callable[..., subprocess.Popen[str]], tmp_path: Path, name: str
) -> None:
    keeper = parent(str(tmp_path / "box"), name, "")
    assert keeper.stdout is not None
    runner = int(keeper.stdout.readline())
    keeper.send_signal(signal.SIGKILL)
    wait_for(lambda: dead(runner), 5)


def test_a_daemon_that_threw_away_its_environment_dies_too(
    parent: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """No mark, no group, no parent: it is found because orphans come to their keeper."""
    pidfile = tmp_path / "pid"
    keeper = parent(str(tmp_path / "box"), "starts_daemon", str(pidfile))
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    keeper.stdout.readline()
    wait_for(lambda: pidfile.exists() and pidfile.read_text())
    daemon = int(pidfile.read_text())
    try:
        wait_for(lambda: os.getpgid(daemon) == daemon)
        assert not dead(daemon)
        keeper.stdin.write("k")
        keeper.stdin.flush()
        assert keeper.stdout.readline() == "killed\n"
        assert dead(daemon)
    finally:
        with suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)
