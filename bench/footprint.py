"""What a node costs while it has nothing to do (P9)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.figure import Figure
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
        memory = sum(map(_pss_mb, pids))
    return [
        Figure("P9", "idle, 4 workers: of one core", share * 100, "%", 2, higher_is_better=False),
        Figure("P9b", "idle, 4 workers: memory", memory, "MB", 500, higher_is_better=False),
    ]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
