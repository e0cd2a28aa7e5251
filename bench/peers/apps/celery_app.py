"""Celery: prefork workers, late acknowledgement, no results."""

from __future__ import annotations

import os
from collections.abc import Sequence

from celery import Celery

from bench.peers.apps.witness import URL_VARIABLE, Enqueue, record

app = Celery("bench", broker=os.environ[URL_VARIABLE])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=64,  # as advised for short tasks
    broker_connection_retry_on_startup=True,
)
noop = app.task(name="noop")(record)


def open_queue() -> Enqueue:
    def enqueue(times: Sequence[float]) -> None:
        for sent in times:
            noop.delay(sent)

    return enqueue
