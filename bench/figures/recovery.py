"""Time to end a stuck handler, and to run the tasks of a killed worker again (P7)."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.figure import OURS, Benchmark, BenchOptions, Contestant, Figure, at_most
from bench.handlers import FOLDER_VARIABLE, read_starts
from drumline.config import Settings
from drumline.system import procfs
from tests.stack import Stack

TIMEOUT = 1.0
"""Seconds: the deadline of the stuck handler."""
WORKERS = 2


def recovery(options: BenchOptions) -> Benchmark:
    """A handler in a C loop that ignores SIGTERM, and a worker that ends by kill -9."""
    stuck = Figure("P7", "stuck handler killed, after deadline + grace", "s", (at_most(1),))
    killed = Figure(
        "P7b", "tasks of a killed worker run again, after the dead limit", "s", (at_most(1),)
    )
    ours = Contestant(
        OURS, 35, lambda: {stuck.id: _seconds_to_kill(), killed.id: _seconds_to_rerun()}
    )
    return Benchmark((stuck, killed), (ours,), 1 if options.quick else 5)


def _seconds_to_kill() -> float:
    """From the end of deadline and grace to the end of the runner's process."""
    with tempfile.TemporaryDirectory() as folder, _stack(folder, workers=1) as stack:
        (runner,) = stack.processes()["runner"]
        stack.call("task.schedule", type="bench.spin", timeout=TIMEOUT)
        stack.wait_for(lambda: procfs.read_stat(runner) is None, 30, "the end of the runner")
        ended = time.time()
        first = read_starts(Path(folder))[0]
    return ended - first.at - TIMEOUT - Settings().kill_grace


def _seconds_to_rerun() -> float:
    """From the kill of a worker to the second start of its task, less the dead limit."""
    with tempfile.TemporaryDirectory() as folder, _stack(folder, workers=WORKERS) as stack:
        for _ in range(WORKERS):
            stack.call("task.schedule", type="bench.hold")
        stack.wait_for(lambda: len(read_starts(Path(folder))) == WORKERS, what="all starts")
        killed = time.time()
        stack.kill("worker")
        stack.wait_for(lambda: len(read_starts(Path(folder))) > WORKERS, 60, "another start")
        again = read_starts(Path(folder))[WORKERS]
    return again.at - killed - Settings().dead_after


def _stack(folder: str, workers: int) -> Stack:
    """A stack that runs the handlers of `bench.handlers` and does not wait for them at its end."""
    stack = Stack("", workers=workers, imports=("bench.handlers",), drain_seconds=0.5)
    stack.environment[FOLDER_VARIABLE] = folder
    return stack
