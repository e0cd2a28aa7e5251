"""Measures a peer: its throughput, its start latency, and its idle processes."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.figure import BenchOptions, Contestant
from bench.peers.apps.witness import FILE_VARIABLE, URL_VARIABLE, count_records, read_records
from bench.peers.peer import PeerSystem
from bench.peers.setup import ROOT, VENV
from bench.results import latency_summary
from drumline.system import procfs

WORKERS = 2
RAMP_UP = 0.1
"""Share of the tasks that is not timed: meanwhile the workers' processes start."""
WARM_UP = 10
START_SECONDS = 30.0
TASK_SECONDS = 0.05
"""A peer that takes longer than this for each task is given up."""
LATENCY_PEERS = ("Dramatiq + Redis", "Procrastinate + PostgreSQL")


def throughput(figure_id: str, options: BenchOptions) -> list[Contestant]:
    """No-ops that are enqueued before the workers start."""
    count = 500 if options.quick else 10_000
    return [
        Contestant(
            peer.name,
            4 + peer.seconds * count / 10_000,
            lambda peer=peer: {figure_id: _tasks_a_second(peer, count)},  # type: ignore[misc]
        )
        for peer in options.peers
    ]


def latency(samples: int, options: BenchOptions) -> list[Contestant]:
    """From the call that enqueues a task to its first line, one task at a time."""
    return [
        Contestant(
            peer.name,
            8 + samples * 0.07,
            lambda peer=peer: _latency(peer, samples),  # type: ignore[misc]
        )
        for peer in options.peers
        if peer.name in LATENCY_PEERS
    ]


def rate_after_ramp_up(starts: Sequence[float]) -> float:
    """Starts per second, without the first ones."""
    ordered = sorted(starts)
    first = int(len(ordered) * RAMP_UP)
    return (len(ordered) - 1 - first) / (ordered[-1] - ordered[first])


def _tasks_a_second(peer: PeerSystem, count: int) -> float:
    with _Environment(peer) as environment:
        environment.enqueue("all", count)
        with environment.workers(WORKERS):
            environment.wait_for_records(count)
        starts = [start for _, start in read_records(environment.file)]
    assert len(starts) == count, f"{len(starts)} starts of {count} tasks"
    return rate_after_ramp_up(starts)


def _latency(peer: PeerSystem, samples: int) -> Mapping[str, float]:
    with _Environment(peer) as environment:
        environment.enqueue("all", 0)
        with environment.workers(WORKERS):
            environment.enqueue("one", WARM_UP + samples)
        records = read_records(environment.file)[WARM_UP:]
    return latency_summary([(start - sent) * 1000 for sent, start in records])


@contextmanager
def running(peer: PeerSystem, workers: int) -> Iterator[list[int]]:
    """The pids of a peer's idle worker processes, which have run some tasks."""
    count = 100
    with _Environment(peer) as environment:
        environment.enqueue("all", count)
        with environment.workers(workers):
            environment.wait_for_records(count)
            yield environment.pids()


class _Environment:
    """A peer's server and witness file; its processes find both in their environment."""

    def __init__(self, peer: PeerSystem) -> None:
        self.peer = peer
        self._stack = ExitStack()

    def __enter__(self) -> _Environment:
        try:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-peer-"))
            self.folder = Path(folder)
            self.file = self.folder / "starts"
            self.url = self._stack.enter_context(self.peer.service())
        except BaseException:
            self._stack.close()
            raise
        self.variables = os.environ | {
            URL_VARIABLE: self.url,
            FILE_VARIABLE: str(self.file),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def enqueue(self, mode: str, count: int) -> None:
        command = [str(VENV / "bin" / "python"), "-m", "bench.peers.apps.enqueue"]
        done = subprocess.run(
            [*command, self.peer.app, mode, str(count)],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.peer.name} could not enqueue: {done.stderr[-1000:]}")

    @contextmanager
    def workers(self, count: int) -> Iterator[None]:
        """Worker processes, killed at the end: nothing that they hold matters any more."""
        processes = []
        log = self.folder / "log"
        try:
            for command in self.peer.commands(count):
                words = [word.format(url=self.url) for word in command]
                with log.open("ab") as output:
                    process = subprocess.Popen(
                        [VENV / "bin" / words[0], *words[1:]],
                        cwd=self.folder,
                        env=self.variables,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                    )
                processes.append(process)
            yield
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {log.read_text(errors='replace')[-1000:]}") from None
        finally:
            while pids := self.pids():
                for pid in pids:
                    _kill(pid)
                time.sleep(0.02)
            for process in processes:
                process.wait()

    def pids(self) -> list[int]:
        """The peer's processes, with all that they started."""
        return [
            stat.pid
            for stat in procfs.read_all()
            if procfs.has_in_environment(stat.pid, FILE_VARIABLE, str(self.file))
        ]

    def wait_for_records(self, count: int) -> None:
        deadline = time.monotonic() + START_SECONDS + count * TASK_SECONDS
        while (found := count_records(self.file)) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.peer.name} ran {found} of {count} tasks in time")
            time.sleep(0.05)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
