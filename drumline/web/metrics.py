"""`/metrics`: what all processes of this node count, and what the database holds."""

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
from drumline.web import listen
from drumline.web.token import Guard

FRESH_SECONDS = 1.0
_LIVE_GAUGE = re.compile(r"gauge_live[a-z]*_(\d+)\.db")


def routes(context: Context, guard: Guard) -> list[Route]:
    directory = context.settings.run_path / "metrics"
    is_local = listen.is_local(context.settings)
    stock = Stock(context)

    def collected() -> bytes:
        forget_dead(directory)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(directory))  # type: ignore[no-untyped-call]
        registry.register(stock)
        return generate_latest(registry)

    async def metrics(request: Request) -> Response:
        if not is_local:
            await guard.require(request, Role.READ)
        return Response(await run_in_threadpool(collected), media_type=CONTENT_TYPE_LATEST)

    return [Route("/metrics", metrics)]


def forget_dead(directory: Path) -> None:
    """A gauge says how things are, and for a dead process they are no longer. What it counted
    stays: counters never go back."""
    pids = {
        int(match[1]) for file in directory.iterdir() if (match := _LIVE_GAUGE.match(file.name))
    }
    for pid in pids:
        if procfs.read_stat(pid) is None or "actor" not in procfs.arguments(pid):
            mark_process_dead(pid, str(directory))  # type: ignore[no-untyped-call]


Counted = tuple[int, dict[str, int], dict[str, int], float]


class Stock(Collector):
    """What is still to be done, read from the database at most once a second."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._counted: Counted | None = None
        self._at = -FRESH_SECONDS

    def collect(self) -> Iterator[GaugeMetricFamily]:
        counted = self._count()
        reachable = GaugeMetricFamily("drumline_database_up", "Whether the database answers.")
        reachable.add_metric([], 0 if counted is None else 1)
        yield reachable
        if counted is None:
            return  # no figure is better than an old one
        batches = GaugeMetricFamily("drumline_batches_unfinished", "Batches that are not over.")
        batches.add_metric([], counted[0])
        yield batches
        tasks = GaugeMetricFamily(
            "drumline_backlog", "Unfinished tasks in the database.", labels=["status"]
        )
        for status, n in counted[1].items():
            tasks.add_metric([status], n)
        yield tasks
        states = GaugeMetricFamily("drumline_sweeps", "Sweeps by state.", labels=["state"])
        for state, n in counted[2].items():
            states.add_metric([state], n)
        yield states
        speed = GaugeMetricFamily("drumline_sweep_speed", "Items a second of all that run.")
        speed.add_metric([], counted[3])
        yield speed

    def describe(self) -> list[GaugeMetricFamily]:
        return []  # else registering would ask the database

    def _count(self) -> Counted | None:
        with self._lock:
            if time.monotonic() - self._at >= FRESH_SECONDS:
                region = self._context.settings.region
                try:
                    database = self._context.db
                    self._counted = database.read(
                        lambda tx: (*backlog.count(tx, region), *sweeps.activity(tx, region)),
                        tries=1,
                    )
                except DrumlineError:
                    self._counted = None
                self._at = time.monotonic()
            return self._counted
