"""Start-up time of a node (P10)."""

from __future__ import annotations

import time

from bench.figure import OURS, Benchmark, BenchOptions, Contestant, Figure, at_most
from tests.stack import Stack


def first_task(options: BenchOptions) -> Benchmark:
    """From `drumline up` on an installed tree to the first task done."""
    figure = Figure("P10", "up to first task done, 4 workers", "s", (at_most(4),))
    ours = Contestant(OURS, 6, lambda: {figure.id: _seconds_to_first_task()})
    return Benchmark((figure,), (ours,), options.rounds)


def _seconds_to_first_task() -> float:
    stack = Stack("", workers=4)
    begun = time.perf_counter()
    with stack:
        batch_id = stack.call("batch.submit", batch_name="first", type="demo.noop", count=1)
        stack.wait_batch(batch_id["batch_id"])
        return time.perf_counter() - begun
