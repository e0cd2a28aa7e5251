"""Tasks per second: run (P1, P2), submitted (P12), and quick beside slow tasks (P11)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from bench.figure import Figure
from drumline.domain.policy import HandlerSpec
from drumline.domain.release import FinishedRun, RetryLimits, RunEnd, RunOutcome
from drumline.domain.states import ACQUIRED
from drumline.store import schema
from drumline.store.batch import batches, operations
from drumline.store.database import Database
from drumline.store.node import keepers
from drumline.store.task import runs, scan, tasks
from drumline.store.tx import Tx
from tests.mariadb import MariaDB
from tests.stack import Stack

BUNDLE = 100
POLL_SECONDS = 0.1
"""Whoever asks for the end too often slows it down."""


@contextmanager
def mariadb() -> Iterator[str]:
    """The URL of an empty database on a server that flushes at each commit."""
    with closing(MariaDB()) as server:
        server.start()
        yield server.create_database("bench")


def durable_mariadb(quick: bool) -> list[Figure]:
    count = 10_000 if quick else 50_000
    with mariadb() as url:
        limit = acquire_and_release(url, count // 5)
        rate = noops(url, count)
    what = f"tasks run, MariaDB, {count:,} no-ops, 2 workers"
    return [
        Figure("P1", what, rate, "tasks/s", 20_000, limit=limit),
        Figure("P1b", "of what the database alone can do", rate / limit, "ratio", 0.45),
    ]


def durable_sqlite(quick: bool) -> list[Figure]:
    count = 10_000 if quick else 50_000
    rate = noops("", count)
    return [
        Figure("P2", f"tasks run, SQLite, {count:,} no-ops, 2 workers", rate, "tasks/s", 10_000)
    ]


def noops(url: str, count: int) -> float:
    """Submit, let go, and see when the last one is done."""
    with Stack(url, workers=2) as stack:
        warm_up(stack)
        stack.call("queue.pause", type="demo.noop")
        batch_id = submit(stack, "demo.noop", count)
        begun = time.perf_counter()
        stack.call("queue.resume", type="demo.noop")
        shown = stack.wait_batch(batch_id, 300, POLL_SECONDS)
        assert shown["counts"] == {"success": count}, shown
        return count / (time.perf_counter() - begun)


def warm_up(stack: Stack) -> None:
    stack.wait_batch(submit(stack, "demo.noop", 500))


def submit(stack: Stack, type: str, count: int, **more: object) -> int:
    """Through the CLI, as a user would."""
    arguments = [f"--{name}={value}" for name, value in more.items()]
    answer = stack.cli(
        "batch", "submit", "bench", "--type", type, "--count", str(count), *arguments
    )
    batch_id: int = answer["batch_id"]
    return batch_id


def acquire_and_release(url: str, count: int) -> float:
    """What the database alone can do: rows acquired and released on one connection."""
    database = Database(url)
    schema.upgrade(database)
    region = "limit"

    def fill(tx: Tx) -> int:
        batch_id = batches.create(
            tx, {"region": region, "name": "limit", "batch_type": "t", "target_type": "t"}
        )
        row = {"batch_id": batch_id, "type": "t", "target_type": "t", "timeout_ms": 1000}
        tasks.add_to_batch(tx, batch_id, [tasks.new_row(tx.now, region, row)] * count)
        operations.open_batch(tx, batches.get(tx, batch_id), unowned=False)
        return keepers.register(tx, name="limit", region=region, node="bench", pid=1, pid_started=1)

    keeper_id = database.write(fill)
    limits, handler = RetryLimits(2, 3), HandlerSpec("t", "t")
    found = database.read(lambda tx: scan.ids(tx, region, tx.now, None, count))
    ids = [cursor.id for cursor, _ in found]
    spent = 0.0
    for start in range(0, count, BUNDLE):
        part = ids[start : start + BUNDLE]
        dues = database.read(lambda tx, part=part: scan.load(tx, part, {}))  # type: ignore[misc]
        begun = time.perf_counter()
        won = runs.acquire(database, keeper_id, dues)
        ended = [
            FinishedRun(
                id=due.id,
                fence=due.fence,
                status=ACQUIRED[due.status],
                batch_id=due.batch_id,
                attempt=1,
                retry_time=0,
                failures=0,
                deaths=0,
                due_at=due.due_at,
                outcome=RunOutcome(RunEnd.SUCCESS),
                handler=handler,
                worker="bench",
            )
            for due in won
        ]
        runs.release(database, keeper_id, ended, limits, 0.5)
        spent += time.perf_counter() - begun
    database.close()
    return count / spent


def submission(quick: bool) -> list[Figure]:
    """The whole call of the CLI, from its start to its answer."""
    count = 20_000 if quick else 100_000
    figures = []
    with Stack("", workers=2) as stack:
        figures.append(_submission(stack, count, "SQLite", 50_000))
    with mariadb() as url, Stack(url, workers=2) as stack:
        figures.append(_submission(stack, count, "MariaDB", 15_000))
    return figures


def _submission(stack: Stack, count: int, where: str, target: float) -> Figure:
    stack.call("queue.pause", type="demo.noop")
    begun = time.perf_counter()
    submit(stack, "demo.noop", count)
    rate = count / (time.perf_counter() - begun)
    return Figure("P12", f"tasks submitted by the CLI, {where}, {count:,}", rate, "tasks/s", target)


def mixed(quick: bool) -> list[Figure]:
    """No-ops behind four slow tasks on eight workers, against four idle workers."""
    count = 2_000 if quick else 10_000
    with Stack("", workers=4) as stack:
        warm_up(stack)
        alone = _timed(stack, count)
    with Stack("", workers=8) as stack:
        warm_up(stack)
        slow = submit(stack, "demo.sleep", 4, param='{"seconds": 10}')
        stack.wait_for(
            lambda: stack.call("batch.show", batch_id=slow)["counts"].get("running") == 4 or None
        )
        behind = _timed(stack, count)
    what = f"{count:,} no-ops behind 4 slow tasks, against 4 idle workers"
    return [Figure("P11", what, behind / alone, "ratio", 1.2, higher_is_better=False)]


def _timed(stack: Stack, count: int) -> float:
    begun = time.perf_counter()
    stack.wait_batch(submit(stack, "demo.noop", count), 60)
    return time.perf_counter() - begun
