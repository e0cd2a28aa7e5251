"""Items per second of a sweep (P6), at constant memory."""

from __future__ import annotations

import time

from bench.figure import Figure
from drumline.system import procfs
from tests.stack import Stack

SETTLED = 1.0
"""Seconds until the window has found its size."""


def items(quick: bool) -> list[Figure]:
    """A no-op over 10^10 indexes, one partition, no rate: what it does while it is watched."""
    seconds = 3.0 if quick else 10.0
    with Stack("", workers=2) as stack:
        stack.call("sweep.create", name="small", type="demo.sweep", total=10**4, start=True)
        stack.wait_for(lambda: stack.call("sweep.show", sweep="small")["finished"] or None)
        small = _memory(stack)
        stack.call("sweep.create", name="large", type="demo.sweep", total=10**10, start=True)
        stack.wait_for(lambda: _done(stack) or None)
        time.sleep(SETTLED)
        first, began = _done(stack), time.perf_counter()
        time.sleep(seconds)
        rate = (_done(stack) - first) / (time.perf_counter() - began)
        grown = _memory(stack) - small
        stack.call("sweep.stop", sweep="large")
    return [
        Figure("P6", "items of a sweep, no-op, one partition", rate, "items/s", 100_000),
        Figure(
            "P6b",
            "memory of the runners for 10^10 items over that for 10^4",
            grown,
            "MB",
            16,
            False,
        ),
    ]


def _done(stack: Stack) -> int:
    return int(stack.call("sweep.show", sweep="large")["done"])


def _memory(stack: Stack) -> float:
    return sum(map(procfs.own_memory_mb, stack.processes()["runner"]))
