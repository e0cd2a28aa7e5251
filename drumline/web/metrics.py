"""`/metrics`: the metrics of all processes of this node, and figures from the database."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from drumline.command_layer.base import Context
from drumline.domain.roles import Role
from drumline.errors import DrumlineError
from drumline.store.sweep import sweeps
from drumline.store.task import backlog
from drumline.system import procfs
from drumline.web import listener
from drumline.web.api_tokens import TokenGuard

CACHE_SECONDS = 1.0
_LIVE_GAUGE = re.compile(r"gauge_live[a-z]*_(\d+)\.db")


def routes(context: Context, guard: TokenGuard) -> list[Route]:
    directory = context.settings.run_path / "metrics"
    is_local = listener.is_local(context.settings)
    database_figures = DatabaseFigures(context)

    def collect() -> bytes:
        remove_gauges_of_dead_processes(directory)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(directory))  # type: ignore[no-untyped-call]
        registry.register(database_figures)
        return generate_latest(registry)

    async def metrics(request: Request) -> Response:
        if not is_local:
            await guard.require(request, Role.READ)
        return Response(await run_in_threadpool(collect), media_type=CONTENT_TYPE_LATEST)

    return [Route("/metrics", metrics)]


def remove_gauges_of_dead_processes(directory: Path) -> None:
    """Remove the gauges of dead processes. Their counters stay: counters never decrease."""
    pids = {
        int(match[1]) for file in directory.iterdir() if (match := _LIVE_GAUGE.match(file.name))
    }
    for pid in pids:
        if procfs.read_stat(pid) is None or "actor" not in procfs.arguments(pid):
            mark_process_dead(pid, str(directory))  # type: ignore[no-untyped-call]


Figures = tuple[int, dict[str, int], dict[str, int], float]


class DatabaseFigures(Collector):
    """The backlog, the unfinished batches and the sweeps, read at most once per second."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._figures: Figures | None = None
        self._read_at = -CACHE_SECONDS

    def collect(self) -> Iterator[GaugeMetricFamily]:
        figures = self._read()
        reachable = GaugeMetricFamily("drumline_database_up", "Whether the database answers.")
        reachable.add_metric([], 0 if figures is None else 1)
        yield reachable
        if figures is None:
            return  # stale figures would mislead
        batches = GaugeMetricFamily("drumline_batches_unfinished", "Unfinished batches.")
        batches.add_metric([], figures[0])
        yield batches
        tasks = GaugeMetricFamily(
            "drumline_backlog", "Unfinished tasks in the database.", labels=["status"]
        )
        for status, n in figures[1].items():
            tasks.add_metric([status], n)
        yield tasks
        states = GaugeMetricFamily("drumline_sweeps", "Sweeps by state.", labels=["state"])
        for state, n in figures[2].items():
            states.add_metric([state], n)
        yield states
        speed = GaugeMetricFamily(
            "drumline_sweep_speed", "Items per second over all running sweeps."
        )
        speed.add_metric([], figures[3])
        yield speed

    def describe(self) -> list[GaugeMetricFamily]:
        return []  # registering must not query the database

    def _read(self) -> Figures | None:
        with self._lock:
            if time.monotonic() - self._read_at >= CACHE_SECONDS:
                region = self._context.settings.region
                try:
                    database = self._context.db
                    self._figures = database.read(
                        lambda tx: (*backlog.count(tx, region), *sweeps.activity(tx, region)),
                        tries=1,
                    )
                except DrumlineError:
                    self._figures = None
                self._read_at = time.monotonic()
            return self._figures
