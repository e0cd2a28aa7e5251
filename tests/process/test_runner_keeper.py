"""A runner does not outlive its keeper, nor does anything that its tasks started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process.runner_harness import TIMEOUT_SECONDS, is_dead


def wait_for(condition: Callable[[], object], seconds: float = TIMEOUT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.005)


PARENT = """
import os, sys, time
from pathlib import Path
from actors.event_loop import EventLoop
from actors.worker.runner_process import RunnerProcess
from drumline.system import processes
from tests.process.runner_harness import HANDLERS, due_task

processes.become_subreaper()
loop = EventLoop()
def received(frame):
    runner.sync.send_tasks([due_task(1, sys.argv[2], sys.argv[3])])
    loop.call_every(0.005, tell)
told = False
def tell():
    global told
    if runner.started_tasks() and not told:
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
def test_runner_is_killed_when_its_keeper_dies(
    parent: Callable[..., subprocess.Popen[str]], tmp_path: Path, name: str
) -> None:
    keeper = parent(str(tmp_path / "box"), name, "")
    assert keeper.stdout is not None
    runner = int(keeper.stdout.readline())
    keeper.send_signal(signal.SIGKILL)
    wait_for(lambda: is_dead(runner), 5)


def test_daemon_without_the_run_environment_is_killed_too(
    parent: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """It has no mark, process group or parent, and is found because the keeper adopts orphans."""
    pidfile = tmp_path / "pid"
    keeper = parent(str(tmp_path / "box"), "starts_daemon", str(pidfile))
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    keeper.stdout.readline()
    wait_for(lambda: pidfile.exists() and pidfile.read_text())
    daemon = int(pidfile.read_text())
    try:
        wait_for(lambda: os.getpgid(daemon) == daemon)
        assert not is_dead(daemon)
        keeper.stdin.write("k")
        keeper.stdin.flush()
        assert keeper.stdout.readline() == "killed\n"
        assert is_dead(daemon)
    finally:
        with suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)
