"""Start latency of one task (P3), and the start-up time of a node (P10)."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.figure import Figure
from tests.stack import Stack

LET_IT_BE = 0.05
"""Seconds: who asks at once how it is, is served by the processes that are to start it."""


def start_of_one(quick: bool) -> list[Figure]:
    """From the call of schedule to the first line of the handler, on an idle system."""
    samples = 50 if quick else 300
    taken = []
    with Stack("", workers=2, imports=("bench.handlers",)) as stack:
        for number in range(samples + 10):
            sent = time.time_ns()
            task_id = stack.call("task.schedule", type="bench.stamp")["task_id"]
            time.sleep(LET_IT_BE)
            task = stack.wait_for(lambda i=task_id: _finished(stack, i))  # type: ignore[misc]
            if number >= 10:
                taken.append((int(task["result"]) - sent) / 1e6)
    cuts = statistics.quantiles(taken, n=100)
    return [
        Figure("P3", "submit to start, median", cuts[49], "ms", 5, higher_is_better=False),
        Figure("P3b", "submit to start, 99th of 100", cuts[98], "ms", 20, higher_is_better=False),
    ]


def _finished(stack: Stack, task_id: int) -> dict[str, Any] | None:
    task = stack.call("task.show", task_id=task_id)
    return task if task["status"] == "success" else None


def first_task(quick: bool) -> list[Figure]:
    """From `drumline up` to the first task done, on an installed tree."""
    stack = Stack("", workers=4)
    begun = time.perf_counter()
    with stack:
        batch_id = stack.call("batch.submit", batch_name="first", type="demo.noop", count=1)
        stack.wait_batch(batch_id["batch_id"])
        seconds = time.perf_counter() - begun
    return [Figure("P10", "up to first task done", seconds, "s", 4, higher_is_better=False)]
