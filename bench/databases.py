"""The databases that the figures are measured on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.mariadb import MariaDB

SQLITE = "SQLite"
MARIADB = "MariaDB"


@contextmanager
def mariadb() -> Iterator[MariaDB]:
    """A new server that flushes at each commit, with an empty database named bench."""
    with closing(MariaDB()) as server:
        server.start()
        server.create_database("bench")
        yield server


@contextmanager
def database_url(where: str) -> Iterator[str]:
    """The URL of an empty database; the empty URL is the SQLite file of a stack."""
    if where == SQLITE:
        yield ""
        return
    with mariadb() as server:
        yield server.url("bench")
