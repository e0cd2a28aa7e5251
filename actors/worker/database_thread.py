"""A thread for the database, so that a loop with deadlines to hold never waits for it.

Jobs run one after the other. A database that is away is waited for: a write whose fate is
unknown must be asked about until there is an answer.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from actors.event_loop import EventLoop
from drumline.errors import StoreUnavailable

log = structlog.get_logger()

T = TypeVar("T")

AWAY_SECONDS = 0.25


class DatabaseThread:
    """Runs jobs in order and hands their results to the loop."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="database", daemon=True)
        self._thread.start()
        self.waiting = 0

    def submit(
        self,
        work: Callable[[], T],
        then: Callable[[T], object],
        failed: Callable[[Exception], object],
    ) -> None:
        """Do the work in the thread; call `then` or `failed` in the loop."""
        self.waiting += 1

        def job() -> None:
            try:
                result = _persistently(work)
            except Exception as error:
                self._loop.post(lambda caught=error: self._over(lambda: failed(caught)))  # type: ignore[misc]
            else:
                self._loop.post(lambda: self._over(lambda: then(result)))

        self._jobs.put(job)

    def _over(self, callback: Callable[[], object]) -> None:
        self.waiting -= 1
        callback()

    def _run(self) -> None:
        while True:
            self._jobs.get()()


def _persistently(work: Callable[[], T]) -> T:
    while True:
        try:
            return work()
        except StoreUnavailable as error:
            log.warning("The database is away; waiting for it.", action="store_unavailable",
                        error=str(error))  # fmt: skip
            time.sleep(AWAY_SECONDS * random.uniform(1, 2))
