"""A thread for database work, so that the keeper's loop never waits for the database.

Jobs run in order. While the database is unavailable a job is retried without end: a write of
unknown outcome has to be checked until there is an answer.
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

RETRY_SECONDS = 0.25


class DatabaseThread:
    """Runs jobs in order and passes their results to the loop."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="database", daemon=True)
        self._thread.start()
        self.waiting = 0
        """Jobs whose callback has not been called."""

    def submit(
        self,
        work: Callable[[], T],
        succeeded: Callable[[T], object],
        failed: Callable[[Exception], object],
    ) -> None:
        """Run `work` in the thread, then call `succeeded` or `failed` in the loop."""
        self.waiting += 1

        def job() -> None:
            try:
                result = _until_available(work)
            except Exception as error:
                self._loop.post(lambda caught=error: self._call(lambda: failed(caught)))  # type: ignore[misc]
            else:
                self._loop.post(lambda: self._call(lambda: succeeded(result)))

        self._jobs.put(job)

    def _call(self, callback: Callable[[], object]) -> None:
        self.waiting -= 1
        callback()

    def _run(self) -> None:
        while True:
            self._jobs.get()()


def _until_available(work: Callable[[], T]) -> T:
    while True:
        try:
            return work()
        except StoreUnavailable as error:
            log.warning("Database unavailable; will retry", action="store_unavailable",
                        error=str(error))  # fmt: skip
            time.sleep(RETRY_SECONDS * random.uniform(1, 2))
