"""The CPU and memory use of an idle node (P9)."""

from __future__ import annotations

import time

from bench.figure import Figure
from drumline.system import procfs
from tests.stack import Stack


def idle(quick: bool) -> list[Figure]:
    seconds = 5.0 if quick else 20.0
    with Stack("", workers=4) as stack:
        stack.wait_batch(
            stack.call("batch.submit", batch_name="warm", type="demo.noop", count=100)["batch_id"]
        )
        pids = [pid for pids in stack.processes().values() for pid in pids]
        before = sum(map(_cpu_seconds, pids))
        begun = time.perf_counter()
        time.sleep(seconds)
        share = (sum(map(_cpu_seconds, pids)) - before) / (time.perf_counter() - begun)
        memory = sum(map(procfs.own_memory_mb, pids))
    return [
        Figure("P9", "idle, 4 workers: of one core", share * 100, "%", 2, higher_is_better=False),
        Figure("P9b", "idle, 4 workers: memory", memory, "MB", 500, higher_is_better=False),
    ]


def _cpu_seconds(pid: int) -> float:
    seen = procfs.read_stat(pid)
    return 0.0 if seen is None else seen.cpu_ticks / procfs.TICKS
