"""Lateness of jobs and timers (P4), and HTTP calls per second (P8)."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from aiohttp import web

from bench.figure import Figure
from bench.handlers import FOLDER_VARIABLE, Start, read_starts
from bench.throughput import POLL_SECONDS, mariadb, submit
from tests.ports import free_port
from tests.stack import Stack

JOBS = 1000
AT_ONCE = 500
CHUNK = 5_000


def punctuality(quick: bool) -> list[Figure]:
    seconds, count = (10, 10_000) if quick else (60, 100_000)
    figures = []
    for where in ("SQLite", "MariaDB"):
        figures.append(_firings(where, seconds))
        figures.append(_one_second(where, count))
    return figures


def _firings(where: str, seconds: int) -> Figure:
    """A thousand jobs, each fires every second."""
    with _witnessed(where) as (stack, folder):
        job = {"cron_expr": "* * * * * *", "type": "bench.witness"}
        for number in range(JOBS):
            stack.call("job.create", name=f"every-second-{number}", **job)
        # What fell behind while the jobs were being made is not what is measured.
        stack.wait_for(lambda: _is_in_time(folder) or None, 60, "a start in time")
        begun = time.time()
        end = begun + seconds + 2
        stack.wait_for(lambda: _last(folder).at > end or None, seconds + 60, "the firings")
        starts = [s for s in read_starts(folder) if begun + 1 < s.due < begun + 1 + seconds]
    assert len(starts) == len({s.task_id for s in starts}), "one ran twice"
    late = statistics.quantiles((s.at - s.due for s in starts), n=100)[98] * 1000
    what = f"{len(starts) / seconds:,.0f} firings/s for {seconds} s, {where}: late, 99th of 100"
    return Figure("P4", what, late, "ms", 50, higher_is_better=False)


def _one_second(where: str, count: int) -> Figure:
    """One-shot tasks that are all due at the same time."""
    with _witnessed(where) as (stack, folder):
        due = time.time() + count / 5_000 + 2
        at = datetime.fromtimestamp(due, UTC).isoformat()
        for _ in range(0, count, CHUNK):
            stack.call(
                "task.schedule_many", type="bench.witness", params=[{"due": due}] * CHUNK, at=at
            )
        ahead = due - time.time()
        assert ahead > 0, f"not submitted in time, by {-ahead:.1f} s"
        stack.wait_for(lambda: len(read_starts(folder)) >= count or None, 120, "all to start")
        starts = read_starts(folder)
    assert len({s.task_id for s in starts}) == len(starts) == count, "one ran twice"
    assert min(s.at for s in starts) >= due, "one ran early"
    spent = max(s.at for s in starts) - due
    what = f"{count:,} tasks due in one second, {where}: the last start"
    return Figure("P4b", what, spent, "s", 8, higher_is_better=False)


@contextmanager
def _witnessed(where: str) -> Iterator[tuple[Stack, Path]]:
    """A stack on an empty database, and where its handlers write down their starts."""
    database = mariadb() if where == "MariaDB" else nullcontext("")
    with tempfile.TemporaryDirectory() as folder, database as url:
        stack = Stack(url, workers=2, imports=("bench.handlers",))
        stack.environment[FOLDER_VARIABLE] = folder
        with stack:
            yield stack, Path(folder)


def _last(folder: Path) -> Start:
    return max(read_starts(folder, tail=1), default=Start(0, 0.0, 0.0))


def _is_in_time(folder: Path) -> bool:
    """Every job has started what was due two seconds ago."""
    due = int(time.time()) - 2
    return sum(start.due == due for start in read_starts(folder, tail=5 * JOBS)) == JOBS


# --- calls ---------------------------------------------------------------------------------------


def calls(quick: bool) -> list[Figure]:
    count = 3_000 if quick else 20_000
    port = free_port()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port}/"
    try:
        asyncio.run(_call(url, 500))  # the server is there, and warm
        bare = asyncio.run(_call(url, count))
        with Stack("", workers=2, http_allow_loopback=True) as stack:
            ours = _http_tasks(stack, url, count)
    finally:
        server.kill()
        server.join()
    return [
        Figure("P8", f"{count:,} HTTP tasks, 2 workers", ours, "calls/s", 0.6 * bare, limit=bare),
        Figure("P8b", "of a bare aiohttp loop", ours / bare, "ratio", 0.6),
    ]


def _http_tasks(stack: Stack, url: str, count: int) -> float:
    def run(count: int) -> float:
        stack.call("queue.pause", type="http")
        batch_id = submit(stack, "http", count, param=json.dumps({"url": url}))
        begun = time.perf_counter()
        stack.call("queue.resume", type="http")
        assert stack.wait_batch(batch_id, 300, POLL_SECONDS)["counts"] == {"success": count}
        return count / (time.perf_counter() - begun)

    run(500)
    return run(count)


async def _call(url: str, count: int) -> float:
    """As many calls at a time as one worker makes."""
    left = iter(range(count))

    async def one_by_one(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.get(url) as answer:
                await answer.read()
                assert answer.status == 200

    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(connector=connector) as session:
        await _until_there(session, url)
        begun = time.perf_counter()
        await asyncio.gather(*(one_by_one(session) for _ in range(AT_ONCE)))
        return count / (time.perf_counter() - begun)


async def _until_there(session: aiohttp.ClientSession, url: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            async with session.get(url):
                return
        except aiohttp.ClientConnectionError:
            assert time.monotonic() < deadline, "the server did not come up"
            await asyncio.sleep(0.05)


def _serve(port: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    app = web.Application()
    app.router.add_route("*", "/", answer)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)
