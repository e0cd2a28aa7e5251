"""CPU and memory of an idle node against Celery (P9)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bench.figure import OURS, Benchmark, BenchOptions, Contestant, Figure, at_most
from bench.load import warm_up
from bench.peers import measure as peers
from bench.peers.peer import PeerSystem
from drumline.system import procfs
from tests.stack import Stack

WORKERS = 4
CELERY = "Celery + Redis"


def idle(options: BenchOptions) -> Benchmark:
    """A whole node with SQLite; of Celery its worker processes, without Redis."""
    seconds = 3.0 if options.quick else 20.0
    cpu = Figure("P9", f"idle, {WORKERS} workers: CPU", "% of a core", (at_most(1, CELERY),))
    memory = Figure("P9b", f"idle, {WORKERS} workers: memory (PSS)", "MB")
    without = Figure(
        "P9c", f"idle, {WORKERS} workers: memory without the gateway", "MB", (at_most(1, CELERY),)
    )
    ours = Contestant(OURS, 8 + seconds, lambda: _sample(seconds))
    celery = [
        Contestant(peer.name, 10 + seconds, lambda peer=peer: _celery(peer, seconds))  # type: ignore[misc]
        for peer in options.peers
        if peer.name == CELERY
    ]
    return Benchmark((cpu, memory, without), (ours, *celery), options.rounds)


def _sample(seconds: float) -> dict[str, float]:
    with Stack("", workers=WORKERS) as stack:
        warm_up(stack)
        processes = stack.processes()
        pids = [pid for kind in processes.values() for pid in kind]
        gateway = sum(map(procfs.own_memory_mb, processes["gateway"]))
        cpu, memory = _usage(pids, seconds)
    return {"P9": cpu, "P9b": memory, "P9c": memory - gateway}


def _celery(peer: PeerSystem, seconds: float) -> dict[str, float]:
    with peers.running(peer, workers=WORKERS) as pids:
        cpu, memory = _usage(pids, seconds)
    return {"P9": cpu, "P9b": memory, "P9c": memory}


def _usage(pids: Sequence[int], seconds: float) -> tuple[float, float]:
    """Percent of one core, and megabytes."""
    before = sum(map(_cpu_seconds, pids))
    begun = time.perf_counter()
    time.sleep(seconds)
    share = (sum(map(_cpu_seconds, pids)) - before) / (time.perf_counter() - begun)
    return share * 100, sum(map(procfs.own_memory_mb, pids))


def _cpu_seconds(pid: int) -> float:
    """From schedstat, in nanoseconds: the ticks of 10 ms in stat are too coarse here."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
