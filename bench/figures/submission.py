"""Tasks submitted per second through the CLI (P12)."""

from __future__ import annotations

import time

from bench import limit
from bench.databases import MARIADB, SQLITE, database_url
from bench.figure import LIMIT, OURS, Benchmark, BenchOptions, Contestant, Figure, at_least
from bench.load import submit
from tests.stack import Stack


def through_the_cli(options: BenchOptions) -> list[Benchmark]:
    """The whole call, from the start of the command to its answer, against a bulk insert."""
    count = 20_000 if options.quick else 100_000
    databases = (SQLITE,) if options.quick else (MARIADB, SQLITE)
    return [_benchmark(where, count, options) for where in databases]


def _benchmark(where: str, count: int, options: BenchOptions) -> Benchmark:
    figure = Figure(
        "P12" if where == MARIADB else "P12-sqlite",
        f"{count:,} tasks submitted through the CLI, {where}",
        "tasks/s",
        (at_least(0.5, LIMIT),),
        higher_is_better=True,
    )
    return Benchmark(
        (figure,),
        (
            Contestant(OURS, 8 + count / 5_000, lambda: {figure.id: _submission(where, count)}),
            Contestant(
                LIMIT, 5 + count / 10_000, lambda: {figure.id: limit.bulk_insert(where, count)}
            ),
        ),
        options.rounds,
    )


def _submission(where: str, count: int) -> float:
    with database_url(where) as url, Stack(url, workers=2) as stack:
        stack.call("queue.pause", type="demo.noop")
        begun = time.perf_counter()
        submit(stack, "demo.noop", count)
        return count / (time.perf_counter() - begun)
