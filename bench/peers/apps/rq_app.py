"""RQ: workers that do not fork for each task, as it is quicker; results are not kept."""

from __future__ import annotations

import os
from collections.abc import Sequence

from redis import Redis
from rq import Queue

from bench.peers.apps.witness import URL_VARIABLE, Enqueue, record


def open_queue() -> Enqueue:
    queue = Queue(connection=Redis.from_url(os.environ[URL_VARIABLE]))

    def enqueue(times: Sequence[float]) -> None:
        for sent in times:
            queue.enqueue(record, sent, result_ttl=0)

    return enqueue
