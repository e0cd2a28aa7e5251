"""All figures by name, and their benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.figure import Benchmark, BenchOptions
from bench.figures import (
    footprint,
    http_calls,
    latency,
    mixed,
    punctuality,
    recovery,
    startup,
    submission,
    sweeps,
    throughput,
)

PLANS: dict[str, Callable[[BenchOptions], Benchmark | list[Benchmark]]] = {
    "P1": throughput.on_mariadb,
    "P2": throughput.on_sqlite,
    "P3": latency.start_of_one,
    "P4": punctuality.firings,
    "P4b": punctuality.one_second,
    "P6": sweeps.items,
    "P7": recovery.recovery,
    "P8": http_calls.calls,
    "P9": footprint.idle,
    "P10": startup.first_task,
    "P11": mixed.beside_slow_tasks,
    "P12": submission.through_the_cli,
    "P13": mixed.urgent_tasks,
}
WITH_PEERS = {"P1", "P3", "P9"}
AGAINST = ("P1", "P2", "P3")
"""Figures that can be measured against another checkout."""


def benchmarks(names: Iterable[str], options: BenchOptions) -> list[Benchmark]:
    found: list[Benchmark] = []
    for name in names:
        planned = PLANS[name](options)
        found += planned if isinstance(planned, list) else [planned]
    return found
