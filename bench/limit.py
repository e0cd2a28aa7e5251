"""The limit: what plain driver calls on one connection reach on a fixed table.

No code of Drumline's runs here, and the table is written out: it is the task table as of November
2026. It does not follow the schema, so a cheaper schema raises our ratio and a heavier one lowers
it.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import CLIENT

from bench.databases import MARIADB, mariadb

ROWS_A_COMMIT = 5_000
"""Of a bulk insert."""
KEEPER = 7
ANYONE, NOBODY = 0, -1
NOW = 1_800_000_000_000_000

SQLITE_DDL = (
    """CREATE TABLE task (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        region VARCHAR(32) NOT NULL,
        batch_id BIGINT,
        type VARCHAR(128) NOT NULL,
        target_type VARCHAR(128) NOT NULL,
        target_id VARCHAR(255),
        target_name VARCHAR(255),
        target_env VARCHAR(64),
        env VARCHAR(64),
        job_id BIGINT,
        active_job_id BIGINT,
        scheduled_at BIGINT,
        run_attempt INTEGER,
        fired_by VARCHAR(32),
        trace_id VARCHAR(32),
        instance_id VARCHAR(255),
        unique_key VARCHAR(255),
        param TEXT,
        before_update TEXT,
        after_update TEXT,
        status VARCHAR(32) NOT NULL,
        cause VARCHAR(32),
        info TEXT,
        priority SMALLINT NOT NULL,
        due_at BIGINT NOT NULL,
        timeout_ms INTEGER NOT NULL,
        retry VARCHAR(1024),
        callback TEXT,
        attempt INTEGER DEFAULT '0' NOT NULL,
        retry_time INTEGER DEFAULT '0' NOT NULL,
        failures INTEGER DEFAULT '0' NOT NULL,
        deaths INTEGER DEFAULT '0' NOT NULL,
        last_failure_at BIGINT,
        owner BIGINT NOT NULL,
        fence BIGINT DEFAULT '0' NOT NULL,
        version BIGINT DEFAULT '0' NOT NULL,
        stop SMALLINT DEFAULT '0' NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        started_at BIGINT DEFAULT '0' NOT NULL,
        finished_at BIGINT DEFAULT '0' NOT NULL
    )""",
    "CREATE INDEX ix_task_active_job ON task (active_job_id, scheduled_at)"
    " WHERE active_job_id IS NOT NULL",
    "CREATE INDEX ix_task_batch ON task (batch_id, id)",
    "CREATE INDEX ix_task_queue ON task (region, owner, priority, due_at, id)",
    "CREATE UNIQUE INDEX uq_task_job_id_scheduled_at ON task (job_id, scheduled_at)"
    " WHERE job_id IS NOT NULL",
    "CREATE UNIQUE INDEX uq_task_unique_key ON task (unique_key) WHERE unique_key IS NOT NULL",
)
MARIADB_DDL = (
    """CREATE TABLE task (
        id BIGINT NOT NULL AUTO_INCREMENT,
        region VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        batch_id BIGINT,
        type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        target_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        target_id VARCHAR(255),
        target_name VARCHAR(255),
        target_env VARCHAR(64),
        env VARCHAR(64),
        job_id BIGINT,
        active_job_id BIGINT,
        scheduled_at BIGINT,
        run_attempt INTEGER,
        fired_by VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
        trace_id VARCHAR(32),
        instance_id VARCHAR(255),
        unique_key VARCHAR(255),
        param MEDIUMTEXT,
        before_update MEDIUMTEXT,
        after_update MEDIUMTEXT,
        status VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        cause VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
        info MEDIUMTEXT,
        priority SMALLINT NOT NULL,
        due_at BIGINT NOT NULL,
        timeout_ms INTEGER NOT NULL,
        retry VARCHAR(1024),
        callback MEDIUMTEXT,
        attempt INTEGER NOT NULL DEFAULT '0',
        retry_time INTEGER NOT NULL DEFAULT '0',
        failures INTEGER NOT NULL DEFAULT '0',
        deaths INTEGER NOT NULL DEFAULT '0',
        last_failure_at BIGINT,
        owner BIGINT NOT NULL,
        fence BIGINT NOT NULL DEFAULT '0',
        version BIGINT NOT NULL DEFAULT '0',
        stop SMALLINT NOT NULL DEFAULT '0',
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        started_at BIGINT NOT NULL DEFAULT '0',
        finished_at BIGINT NOT NULL DEFAULT '0',
        CONSTRAINT pk_task PRIMARY KEY (id)
    ) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin""",
    "CREATE INDEX ix_task_active_job ON task (active_job_id, scheduled_at)",
    "CREATE INDEX ix_task_batch ON task (batch_id, id)",
    "CREATE INDEX ix_task_queue ON task (region, owner, priority, due_at, id)",
    "CREATE UNIQUE INDEX uq_task_job_id_scheduled_at ON task (job_id, scheduled_at)",
    "CREATE UNIQUE INDEX uq_task_unique_key ON task (unique_key)",
)

INSERT = (
    "INSERT INTO task (region, batch_id, type, target_type, status, priority, due_at, timeout_ms,"
    " owner, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
ROW = (
    *("default", 1, "demo.noop", "demo", "pending", 5, NOW, 60_000),
    *(ANYONE, NOW, NOW),
)
ACQUIRE = (
    "UPDATE task SET status = 'running', owner = ?, fence = version + 1, version = version + 1,"
    " attempt = attempt + 1, started_at = ?, updated_at = ?, finished_at = 0"
    " WHERE id IN ({ids}) AND owner = ? AND status = 'pending' AND version = ?"
)
ACQUIRE_VALUES = (KEEPER, NOW, NOW)
ACQUIRE_CONDITIONS = (ANYONE, 0)
RELEASE = (
    "UPDATE task SET status = 'success', owner = ?, version = version + 1, updated_at = ?,"
    " finished_at = ?, cause = NULL, info = NULL, callback = NULL, unique_key = NULL,"
    " active_job_id = NULL, stop = 0"
    " WHERE id IN ({ids}) AND owner = ? AND fence = ? AND status = 'running' AND stop <= ?"
)
RELEASE_VALUES = (NOBODY, NOW, NOW)
RELEASE_CONDITIONS = (KEEPER, 1, 0)


class PlainDatabase(NamedTuple):
    """One connection of a driver, and how the driver marks a parameter."""

    connection: Any
    mark: str

    def execute(self, statement: str, values: Sequence[object]) -> int:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement.replace("?", self.mark), values)
            return int(cursor.rowcount)

    def insert(self, count: int) -> None:
        """Insert tasks, in commits of ROWS_A_COMMIT."""
        statement = INSERT.replace("?", self.mark)
        with closing(self.connection.cursor()) as cursor:
            for start in range(0, count, ROWS_A_COMMIT):
                cursor.executemany(statement, [ROW] * min(ROWS_A_COMMIT, count - start))
                self.connection.commit()


def acquire_and_release(where: str, count: int) -> float:
    """Tasks per second, in bundles of 200 on MariaDB and of 500 on SQLite."""
    bundle = 200 if where == MARIADB else 500
    with _database(where) as database:
        database.insert(count)
        begun = time.perf_counter()
        for first in range(1, count + 1, bundle):
            ids = tuple(range(first, min(first + bundle, count + 1)))
            _change(database, ACQUIRE, ACQUIRE_VALUES, ids, ACQUIRE_CONDITIONS)
            _change(database, RELEASE, RELEASE_VALUES, ids, RELEASE_CONDITIONS)
        return count / (time.perf_counter() - begun)


def bulk_insert(where: str, count: int) -> float:
    """Rows inserted per second."""
    with _database(where) as database:
        begun = time.perf_counter()
        database.insert(count)
        return count / (time.perf_counter() - begun)


def _change(
    database: PlainDatabase,
    statement: str,
    values: tuple[object, ...],
    ids: tuple[int, ...],
    conditions: tuple[object, ...],
) -> None:
    marks = ", ".join("?" * len(ids))
    changed = database.execute(statement.format(ids=marks), values + ids + conditions)
    database.connection.commit()
    assert changed == len(ids), f"changed {changed} of {len(ids)} rows"


@contextmanager
def _database(where: str) -> Iterator[PlainDatabase]:
    """A new database with the fixed table."""
    with _mariadb() if where == MARIADB else _sqlite() as database:
        for statement in MARIADB_DDL if where == MARIADB else SQLITE_DDL:
            database.execute(statement, ())
        database.connection.commit()
        yield database


@contextmanager
def _sqlite() -> Iterator[PlainDatabase]:
    with (
        tempfile.TemporaryDirectory(prefix="drumline-limit-") as folder,
        closing(sqlite3.connect(Path(folder) / "limit.db")) as connection,
    ):
        # As Drumline sets them, so that the limit writes to the disk what Drumline writes.
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "wal_autocheckpoint=0",
            "cache_size=-8000",
        ):
            connection.execute(f"PRAGMA {pragma}")
        yield PlainDatabase(connection, "?")


@contextmanager
def _mariadb() -> Iterator[PlainDatabase]:
    with mariadb() as server:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=server.port,
            user="root",
            database="bench",
            charset="utf8mb4",
            client_flag=CLIENT.FOUND_ROWS,
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )
        with closing(connection):
            yield PlainDatabase(connection, "%s")
