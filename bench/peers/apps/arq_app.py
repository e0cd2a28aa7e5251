"""arq: acknowledges after the run, as it always does; results are not kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings

from bench.peers.apps.witness import URL_VARIABLE, Enqueue, record

CHUNK = 500


async def noop(context: dict[str, Any], sent: float) -> None:
    record(sent)


class WorkerSettings:
    """Read by the command `arq`."""

    functions = (noop,)
    redis_settings = RedisSettings.from_dsn(os.environ[URL_VARIABLE])
    max_jobs = 100
    keep_result = 0
    poll_delay = 0.01


def open_queue() -> Enqueue:
    loop = asyncio.new_event_loop()
    pool = loop.run_until_complete(create_pool(WorkerSettings.redis_settings))

    async def send(times: Sequence[float]) -> None:
        await asyncio.gather(*(pool.enqueue_job("noop", sent) for sent in times))

    def enqueue(times: Sequence[float]) -> None:
        for start in range(0, len(times), CHUNK):
            loop.run_until_complete(send(times[start : start + CHUNK]))

    return enqueue
