"""Procrastinate: its only storage is PostgreSQL, with notifications for an immediate start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import procrastinate

from bench.peers.apps.witness import URL_VARIABLE, Enqueue, record

CHUNK = 1_000


async def _noop(sent: float) -> None:
    record(sent)


app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ[URL_VARIABLE]))
noop = app.task(name="noop")(_noop)


def open_queue() -> Enqueue:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(app.open_async())
    if not loop.run_until_complete(app.check_connection_async()):
        loop.run_until_complete(app.schema_manager.apply_schema_async())

    def enqueue(times: Sequence[float]) -> None:
        for start in range(0, len(times), CHUNK):
            tasks = [{"sent": sent} for sent in times[start : start + CHUNK]]
            loop.run_until_complete(noop.batch_defer_async(*tasks))

    return enqueue
