"""Dramatiq: acknowledges after the run, as it always does."""

from __future__ import annotations

import os
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.apps.witness import URL_VARIABLE, Enqueue, record

broker = RedisBroker(url=os.environ[URL_VARIABLE])
dramatiq.set_broker(broker)
noop = dramatiq.actor(record, actor_name="noop")


def open_queue() -> Enqueue:
    def enqueue(times: Sequence[float]) -> None:
        for sent in times:
            noop.send(sent)

    return enqueue
