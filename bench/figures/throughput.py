"""Durable throughput on MariaDB (P1) and SQLite (P2)."""

from __future__ import annotations

from bench import limit
from bench.databases import MARIADB, SQLITE, database_url
from bench.figure import (
    BEST_PEER,
    LIMIT,
    OURS,
    Benchmark,
    BenchOptions,
    Contestant,
    Figure,
    at_least,
)
from bench.load import paused_rate, warm_up
from bench.peers import measure as peers
from tests.stack import Stack

PROCRASTINATE = "Procrastinate + PostgreSQL"


def on_mariadb(options: BenchOptions) -> Benchmark:
    """No-ops submitted beforehand, against the limit and the peers."""
    count = 10_000 if options.quick else 50_000
    figure = Figure(
        "P1",
        f"throughput, MariaDB, {count:,} no-ops, 2 workers",
        "tasks/s",
        (at_least(0.65, LIMIT), at_least(6, BEST_PEER), at_least(60, PROCRASTINATE)),
        higher_is_better=True,
    )
    ours, bound = _contestants(figure.id, MARIADB, count)
    return Benchmark(
        (figure,), (ours, bound, *peers.throughput(figure.id, options)), options.rounds
    )


def on_sqlite(options: BenchOptions) -> Benchmark:
    """The same on SQLite with synchronous=FULL."""
    count = 10_000 if options.quick else 50_000
    figure = Figure(
        "P2",
        f"throughput, SQLite, {count:,} no-ops, 2 workers",
        "tasks/s",
        (at_least(0.5, LIMIT),),
        higher_is_better=True,
    )
    return Benchmark((figure,), _contestants(figure.id, SQLITE, count), options.rounds)


def _contestants(figure_id: str, where: str, count: int) -> tuple[Contestant, Contestant]:
    return (
        Contestant(OURS, 10 + count / 5_000, lambda: {figure_id: noops(where, count)}),
        Contestant(LIMIT, 6, lambda: {figure_id: limit.acquire_and_release(where, count)}),
    )


def noops(where: str, count: int) -> float:
    """Tasks per second of two workers."""
    with database_url(where) as url, Stack(url, workers=2) as stack:
        warm_up(stack)
        return paused_rate(stack, "demo.noop", count)
