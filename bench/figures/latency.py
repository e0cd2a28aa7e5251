"""Start latency of one task on an idle system (P3)."""

from __future__ import annotations

import time
from typing import Any

from bench.figure import OURS, Benchmark, BenchOptions, Contestant, Figure, at_most
from bench.peers import measure as peers
from bench.results import latency_summary
from tests.stack import Stack

PAUSE = 0.05
"""Seconds before the first question for the end, which the measured processes have to answer."""
WARM_UP = 10


def start_of_one(options: BenchOptions) -> Benchmark:
    """From the call of schedule to the first line of the handler, one task at a time."""
    samples = 30 if options.quick else 300
    median = Figure(
        "P3",
        "submit to start, idle, median",
        "ms",
        (at_most(2, "Dramatiq + Redis"), at_most(1, "Procrastinate + PostgreSQL")),
    )
    tail = Figure("P3b", "submit to start, idle, 99th percentile", "ms")
    multiple = Figure("P3c", "99th percentile over median", "x", (at_most(4),))
    ours = Contestant(OURS, 8 + samples * 0.08, lambda: latency_summary(_starts(samples)))
    return Benchmark(
        (median, tail, multiple), (ours, *peers.latency(samples, options)), options.rounds
    )


def _starts(samples: int) -> list[float]:
    taken = []
    with Stack("", workers=2, imports=("bench.handlers",)) as stack:
        for _ in range(WARM_UP + samples):
            sent = time.time_ns()
            task_id = stack.call("task.schedule", type="bench.stamp")["task_id"]
            time.sleep(PAUSE)
            task = stack.wait_for(lambda i=task_id: _finished(stack, i))  # type: ignore[misc]
            taken.append((int(task["result"]) - sent) / 1e6)
    return taken[WARM_UP:]


def _finished(stack: Stack, task_id: int) -> dict[str, Any] | None:
    task = stack.call("task.show", task_id=task_id)
    return task if task["status"] == "success" else None
