"""Transactions, which are retried as a whole after a transient error of the database.

A unit of work is a function of a `Tx`. It may run more than once, so it must do nothing that a
rollback does not undo. The caller gets what the committed call returned.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from drumline.domain import alarms
from drumline.domain.alarms import Webhook
from drumline.errors import StoreUnavailable
from drumline.store import dialects
from drumline.store.batch import batches
from drumline.store.tx import Tx

T = TypeVar("T")

TRIES = 6
CLOCK_CHECK_SECONDS = 60.0


class Database:
    """The database, with one connection per thread that is opened at its first use."""

    def __init__(
        self, url: str, patience: float | None = None, webhooks: Sequence[Webhook] = ()
    ) -> None:
        self.dialect = dialects.for_url(url, patience)
        self.engine = self.dialect.engine()
        self._hooks = alarms.webhooks_by_event(webhooks)
        self._local = threading.local()
        self._offset = 0
        self._clock_checked: float | None = None

    def now(self) -> int:
        """The database's time in microseconds (on SQLite the host's)."""
        return time.time_ns() // 1000 + self._offset

    def write(self, work: Callable[[Tx], T], tries: int = TRIES) -> T:
        """Run a writing transaction; after a transient error all of it runs again."""
        return self._retried(lambda: self._write_once(work), tries)

    def read(self, work: Callable[[Tx], T], tries: int = TRIES) -> T:
        """Run a reading transaction."""
        return self._retried(lambda: self._read_once(work), tries)

    def close(self) -> None:
        self._drop_connection()
        self.engine.dispose()

    def _write_once(self, work: Callable[[Tx], T]) -> T:
        with self.dialect.writing():
            connection = self._connection()
            with connection.begin():
                self.dialect.begin_write(connection)
                tx = Tx(connection, self.dialect, self.now(), self._hooks)
                answer = work(tx)
                batches.apply_counter_changes(tx)
                return answer

    def _read_once(self, work: Callable[[Tx], T]) -> T:
        connection = self._connection()
        with connection.begin():
            return work(Tx(connection, self.dialect, self.now()))

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            connection = self.engine.connect()
            self._local.connection = connection
        moment = time.monotonic()
        if self._clock_checked is None or moment - self._clock_checked > CLOCK_CHECK_SECONDS:
            with connection.begin():
                before = time.time_ns() // 1000
                theirs = self.dialect.clock(connection)
                after = time.time_ns() // 1000
            self._offset = 0 if theirs is None else clock_offset(before, theirs, after)
            self._clock_checked = moment
        return connection

    def _drop_connection(self) -> None:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            connection.invalidate()
            connection.close()

    def _retried(self, attempt: Callable[[], T], tries: int) -> T:
        for number in range(1, tries + 1):
            try:
                return attempt()
            except DBAPIError as error:
                if not self.dialect.is_transient(error):
                    raise
                if error.connection_invalidated:
                    self._drop_connection()
                if number == tries:
                    raise StoreUnavailable(reason=_first_line(error)) from error
            # 10 ms, doubling, with jitter so that two transactions do not collide again
            time.sleep(random.uniform(0.5, 1.5) * 0.01 * 2**number)
        raise AssertionError("unreachable")


def clock_offset(before: int, theirs: int, after: int) -> int:
    """How far the database's clock is ahead, from one reading of it between two of the host's.

    Within the time that the reading took, the clocks agree. On a busy host a process is delayed by
    tens of milliseconds there; if that counted as an offset, each process would have another clock
    and a worker could start a task before the time for which another process held it back.
    """
    return 0 if before <= theirs <= after else theirs - (before + after) // 2


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).splitlines()[0] if error.orig else str(error)
