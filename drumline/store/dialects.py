"""The differences between the databases, as capabilities. No other code asks for the database."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Insert, Table, create_engine, event, text
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from drumline.errors import BadConfig, StoreUnavailable

MYSQL_TRANSIENT = frozenset({1020, 1040, 1053, 1205, 1213, 1290, 2002, 2003, 2006, 2013, 2055})
"""Changed row, too many connections, shutdown, lock wait, deadlock, read-only, and the ways in
which a connection is lost."""


class Dialect(Protocol):
    """What one kind of database does differently from the others."""

    name: str
    alone: bool
    """No other host can reach this database."""

    def engine(self) -> Engine: ...

    def writing(self) -> Any:
        """A context in which a writing transaction may begin."""

    def begin_write(self, connection: Connection) -> None: ...

    def is_transient(self, error: DBAPIError) -> bool: ...

    def upsert(self, table: Table) -> Insert:
        """Insert rows; a row with the same primary key is replaced."""

    def clock(self, connection: Connection) -> int | None:
        """The database's time in microseconds, or None where it is the host's."""

    @property
    def checkpoint(self) -> Callable[[Engine], None] | None:
        """Periodic maintenance, to be run by one process per node; None if there is none."""


class SQLite:
    """One writer at a time; a file lock in front of BEGIN IMMEDIATE makes the waiting short.

    SQLite's own busy handler sleeps in growing steps and can starve a writer; flock wakes the
    next one at once. Checkpoints are made by one process only (see `checkpoint`): several
    processes that write and checkpoint can corrupt the log of SQLite before 3.51.3.
    """

    name = "sqlite"
    alone = True

    def __init__(self, url: URL, patience: float | None) -> None:
        if not url.database or url.database == ":memory:":
            raise BadConfig(
                reason="database_url must name a SQLite file: processes cannot share memory"
            )
        self.path = Path(url.database)
        self.patience = patience
        self.url = url
        self._local = threading.local()

    def engine(self) -> Engine:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(
            self.url, connect_args={"timeout": 5, "check_same_thread": False}, pool_size=8
        )

        @event.listens_for(engine, "connect")
        def configure(connection: Any, _: object) -> None:
            connection.isolation_level = None  # begin_write issues BEGIN
            for pragma in (
                "journal_mode=WAL",
                "synchronous=FULL",
                "wal_autocheckpoint=0",
                "cache_size=-8000",
            ):
                connection.execute(f"PRAGMA {pragma}")

        return engine

    @contextmanager
    def writing(self) -> Iterator[None]:
        fd = getattr(self._local, "fd", None)
        if fd is None:
            fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._local.fd = fd
        self._wait_for(fd)
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _wait_for(self, fd: int) -> None:
        if self.patience is None:
            fcntl.flock(fd, fcntl.LOCK_EX)
            return
        deadline = time.monotonic() + self.patience
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreUnavailable(reason=f"{self.path} is locked") from None
            time.sleep(0.002)

    def begin_write(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def is_transient(self, error: DBAPIError) -> bool:
        words = str(error.orig)
        return any(part in words for part in ("locked", "busy", "disk I/O", "full"))

    def upsert(self, table: Table) -> Insert:
        insert = sqlite.insert(table)
        changes = {c.name: insert.excluded[c.name] for c in table.c if not c.primary_key}
        return insert.on_conflict_do_update(index_elements=table.primary_key, set_=changes)

    def clock(self, connection: Connection) -> int | None:
        return None

    @property
    def checkpoint(self) -> Callable[[Engine], None]:
        return _checkpoint


class MySQL:
    """MariaDB and MySQL: short READ COMMITTED transactions by primary key."""

    name = "mysql"
    alone = False

    def __init__(self, url: URL) -> None:
        if not url.database:
            raise BadConfig(reason="database_url must name a database")
        from pymysql.constants import CLIENT

        self.url = url.set(drivername="mysql+pymysql")
        self.connect_args = {
            "connect_timeout": 5,
            "read_timeout": 20,
            "write_timeout": 20,
            "charset": "utf8mb4",
            # rowcount counts rows found, as every compare-and-set here relies on
            "client_flag": CLIENT.FOUND_ROWS,
            "init_command": "SET SESSION time_zone='+00:00', innodb_lock_wait_timeout=5",
        }

    def engine(self) -> Engine:
        return create_engine(
            self.url,
            connect_args=self.connect_args,
            isolation_level="READ COMMITTED",
            pool_size=8,
            pool_recycle=1800,
        )

    @contextmanager
    def writing(self) -> Iterator[None]:
        yield

    def begin_write(self, connection: Connection) -> None:
        """The server begins a transaction by itself with the first statement."""

    def is_transient(self, error: DBAPIError) -> bool:
        arguments = getattr(error.orig, "args", ())
        code = arguments[0] if arguments and isinstance(arguments[0], int) else None
        return code in MYSQL_TRANSIENT or error.connection_invalidated

    def upsert(self, table: Table) -> Insert:
        insert = mysql.insert(table)
        changes = {c.name: insert.inserted[c.name] for c in table.c if not c.primary_key}
        return insert.on_duplicate_key_update(changes)

    def clock(self, connection: Connection) -> int | None:
        stamp = connection.execute(text("SELECT UNIX_TIMESTAMP() * 1000000 + MICROSECOND(NOW(6))"))
        return int(stamp.scalar_one())

    @property
    def checkpoint(self) -> None:
        return None


def _checkpoint(engine: Engine) -> None:
    """Move the write-ahead log into the database without blocking readers or writers."""
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")


def for_url(text_url: str, patience: float | None = None) -> Dialect:
    """The dialect of a database URL. `patience`: seconds to wait for SQLite's write lock."""
    try:
        url = make_url(text_url)
    except ArgumentError:
        raise BadConfig(reason=f"database_url is not a URL: {_masked(text_url)}") from None
    match url.get_backend_name():
        case "sqlite":
            return SQLite(url, patience)
        case "mysql" | "mariadb":
            return MySQL(url)
        case other:
            raise BadConfig(reason=f"database_url is for {other}; known: sqlite, mysql, mariadb")


def _masked(text_url: str) -> str:
    head, at, tail = text_url.rpartition("@")
    return f"***@{tail}" if at else head + tail
