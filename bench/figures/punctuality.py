"""Lateness of cron firings (P4) and of one-shot tasks that are due at once (P4b)."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bench import limit
from bench.databases import MARIADB, SQLITE, database_url
from bench.figure import LIMIT, OURS, Benchmark, BenchOptions, Contestant, Figure, at_most
from bench.figures.throughput import noops
from bench.handlers import FOLDER_VARIABLE, Start, read_starts
from tests.stack import Stack

JOBS = 1_000
CHUNK = 5_000
SUBMISSION_RATE = 2_500
"""Tasks per second that can be scheduled ahead of their time, at least."""


def firings(options: BenchOptions) -> list[Benchmark]:
    """A thousand jobs that fire each second; the limit is 1,000 over the limit's rate."""
    seconds = 5 if options.quick else 60
    return [_firings(where, seconds, options) for where in _databases(options)]


def one_second(options: BenchOptions) -> list[Benchmark]:
    """One-shots that are all due at once; the limit is their number over our throughput."""
    count = 10_000 if options.quick else 100_000
    return [_one_second(where, count, options) for where in _databases(options)]


def _databases(options: BenchOptions) -> tuple[str, ...]:
    return (SQLITE,) if options.quick else (MARIADB, SQLITE)


def _id(base: str, where: str) -> str:
    return base if where == MARIADB else f"{base}-sqlite"


def _firings(where: str, seconds: int, options: BenchOptions) -> Benchmark:
    figure = Figure(
        _id("P4", where),
        f"{JOBS:,} firings/s for {seconds} s, {where}: lateness, 99th percentile",
        "ms",
        (at_most(1.2, LIMIT),),
    )
    return Benchmark(
        (figure,),
        (
            Contestant(OURS, 30 + seconds, lambda: {figure.id: _lateness(where, seconds)}),
            Contestant(LIMIT, 6, lambda: {figure.id: _limit_milliseconds(where)}),
        ),
        1 if options.quick else 3,
    )


def _limit_milliseconds(where: str) -> float:
    return JOBS / limit.acquire_and_release(where, 10_000) * 1000


def _one_second(where: str, count: int, options: BenchOptions) -> Benchmark:
    figure = Figure(
        _id("P4b", where),
        f"{count:,} tasks due in one second, {where}: last start",
        "s",
        (at_most(1.1, LIMIT),),
    )
    return Benchmark(
        (figure,),
        (
            Contestant(OURS, 20 + count / 1_000, lambda: {figure.id: _last_start(where, count)}),
            Contestant(
                LIMIT,
                10 + count / 10_000,
                lambda: {figure.id: count / noops(where, count // 2)},
            ),
        ),
        1 if options.quick else 3,
    )


def _lateness(where: str, seconds: int) -> float:
    with _witnessed(where) as (stack, folder):
        for number in range(JOBS):
            name = f"every-second-{number}"
            stack.call("job.create", name=name, cron_expr="* * * * * *", type="bench.witness")
        # The backlog from the time when the jobs were created is not measured.
        stack.wait_for(lambda: _in_time(folder) or None, 60, "a start in time")
        begun = time.time()
        end = begun + seconds + 2
        stack.wait_for(lambda: _last(folder).at > end or None, seconds + 60, "the firings")
        starts = [s for s in read_starts(folder) if begun + 1 < s.due < begun + 1 + seconds]
    assert len(starts) == len({s.task_id for s in starts}), "a firing ran twice"
    return statistics.quantiles((s.at - s.due for s in starts), n=100)[98] * 1000


def _last_start(where: str, count: int) -> float:
    with _witnessed(where) as (stack, folder):
        due = time.time() + count / SUBMISSION_RATE + 2
        at = datetime.fromtimestamp(due, UTC).isoformat()
        for _ in range(0, count, CHUNK):
            stack.call(
                "task.schedule_many", type="bench.witness", params=[{"due": due}] * CHUNK, at=at
            )
        assert time.time() < due, "the submission took longer than the time until the tasks are due"
        stack.wait_for(lambda: len(read_starts(folder)) >= count or None, 180, "all starts")
        starts = read_starts(folder)
    assert len({s.task_id for s in starts}) == len(starts) == count, "a task ran twice"
    assert min(s.at for s in starts) >= due, "a task ran early"
    return max(s.at for s in starts) - due


@contextmanager
def _witnessed(where: str) -> Iterator[tuple[Stack, Path]]:
    """A stack on an empty database, and the folder in which its handlers record their starts."""
    with tempfile.TemporaryDirectory() as folder, database_url(where) as url:
        stack = Stack(url, workers=2, imports=("bench.handlers",))
        stack.environment[FOLDER_VARIABLE] = folder
        with stack:
            yield stack, Path(folder)


def _last(folder: Path) -> Start:
    return max(read_starts(folder, tail=1), default=Start(0, 0.0, 0.0))


def _in_time(folder: Path) -> bool:
    """Whether every job has started the firing of two seconds ago."""
    due = int(time.time()) - 2
    return sum(start.due == due for start in read_starts(folder, tail=5 * JOBS)) == JOBS
