"""Items per second of a sweep, and the memory that it needs (P6)."""

from __future__ import annotations

import time

from bench.figure import OURS, Benchmark, BenchOptions, Contestant, Figure, at_least, at_most
from drumline.system import procfs
from tests.stack import Stack

RAMP_UP = 1.0
"""Seconds until the window has found its size."""


def items(options: BenchOptions) -> Benchmark:
    """A no-op over 10^10 indexes, in one partition and without a rate."""
    seconds = 3.0 if options.quick else 10.0
    rate = Figure(
        "P6",
        "items of a sweep, no-op, one partition",
        "items/s",
        (at_least(1_000_000),),
        higher_is_better=True,
    )
    memory = Figure(
        "P6b", "memory of the runners for 10^10 items over that for 10^4", "MB", (at_most(4),)
    )
    ours = Contestant(OURS, 10 + seconds, lambda: _sample(seconds))
    return Benchmark((rate, memory), (ours,), options.rounds)


def _sample(seconds: float) -> dict[str, float]:
    with Stack("", workers=2) as stack:
        stack.call("sweep.create", name="small", type="demo.sweep", total=10**4, start=True)
        stack.wait_for(lambda: stack.call("sweep.show", sweep="small")["finished"] or None)
        small = _memory(stack)
        stack.call("sweep.create", name="large", type="demo.sweep", total=10**10, start=True)
        stack.wait_for(lambda: _done(stack) or None)
        time.sleep(RAMP_UP)
        first, began = _done(stack), time.perf_counter()
        time.sleep(seconds)
        rate = (_done(stack) - first) / (time.perf_counter() - began)
        growth = _memory(stack) - small
        stack.call("sweep.stop", sweep="large")
    return {"P6": rate, "P6b": growth}


def _done(stack: Stack) -> int:
    return int(stack.call("sweep.show", sweep="large")["done"])


def _memory(stack: Stack) -> float:
    return sum(map(procfs.own_memory_mb, stack.processes()["runner"]))
