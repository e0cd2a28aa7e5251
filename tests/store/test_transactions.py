"""Transactions: whole or not at all, tried again when the fault was a passing one."""

import fcntl
import os
import sqlite3
import threading
import time
from pathlib import Path

import pymysql
import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError, OperationalError

from drumline.errors import BadConfig, StoreUnavailable
from drumline.store import dialects
from drumline.store.database import TRIES, Database
from drumline.store.node import pauses
from drumline.store.tables import pause, task
from drumline.store.tx import Tx
from tests.mariadb import MariaDB
from tests.store.world import REGION, PauseRow, World, at_once, passing_fault


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries of a whole transaction."""
    monkeypatch.setattr("drumline.store.database.random.uniform", lambda low, high: 0.01)


class Failing:
    """Work that fails a number of times, after having written something."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left = times
        self.error = error
        self.runs = 0

    def __call__(self, tx: Tx) -> str:
        self.runs += 1
        pauses.add(tx, REGION, f"run {self.runs}")
        if self.left:
            self.left -= 1
            raise self.error
        return f"run {self.runs}"


def test_a_passing_fault_runs_the_whole_transaction_again(world: World) -> None:
    work = Failing(2, passing_fault(world.database))
    assert world.database.write(work) == "run 3"
    # What the runs before had written is gone with them.
    assert [row.type for row in world.rows(PauseRow)] == ["run 3"]


def test_a_fault_that_does_not_pass_is_said_to_be_so(world: World) -> None:
    work = Failing(1000, passing_fault(world.database))
    with pytest.raises(StoreUnavailable, match=r"Lost connection|disk I/O"):
        world.database.write(work)
    assert work.runs == TRIES
    assert world.rows(PauseRow) == []
    once = Failing(1000, passing_fault(world.database))
    with pytest.raises(StoreUnavailable):
        world.database.write(once, tries=1)
    assert once.runs == 1


def test_reads_are_tried_again_too(world: World) -> None:
    left = [passing_fault(world.database)] * 2

    def work(tx: Tx) -> int:
        if left:
            raise left.pop()
        return 7

    assert world.database.read(work) == 7


def test_another_error_is_not_tried_again(world: World) -> None:
    work = Failing(1, ValueError("ours"))
    with pytest.raises(ValueError, match="ours"):
        world.database.write(work)
    assert work.runs == 1
    assert world.rows(PauseRow) == []

    def double(tx: Tx) -> None:
        row = {"region": REGION, "type": "x", "created_at": 1}
        tx.execute(insert(pause), [row, row])

    with pytest.raises(IntegrityError):
        world.database.write(double)
    assert world.database.write(lambda tx: 1) == 1, "the connection is as good as before"


def test_after_a_lost_connection_a_new_one_is_made(world: World) -> None:
    first = world.database.write(lambda tx: tx.connection)
    error = passing_fault(world.database)
    error.connection_invalidated = True
    world.database.write(Failing(1, error))
    assert world.database.write(lambda tx: tx.connection) is not first
    assert first.closed


@pytest.mark.parametrize("code", [1020, 1040, 1053, 1205, 1213, 1290, 2002, 2003, 2006, 2013, 2055])
def test_the_passing_faults_of_mariadb(mariadb_database: Database, code: int) -> None:
    error = OperationalError("x", None, pymysql.err.OperationalError(code, "words"))
    assert mariadb_database.dialect.is_transient(error)


@pytest.mark.parametrize("code", [1048, 1054, 1062, 1064, 1146, 1406])
def test_what_is_our_own_fault_on_mariadb(mariadb_database: Database, code: int) -> None:
    error = OperationalError("x", None, pymysql.err.OperationalError(code, "words"))
    assert not mariadb_database.dialect.is_transient(error)


@pytest.mark.parametrize(
    ("words", "passing"),
    [
        ("database is locked", True),
        ("database table is locked", True),
        ("disk I/O error", True),
        ("database or disk is full", True),
        ("no such table: task", False),
        ("UNIQUE constraint failed: task.unique_key", False),
    ],
)
def test_the_passing_faults_of_sqlite(sqlite_database: Database, words: str, passing: bool) -> None:
    error = OperationalError("x", None, sqlite3.OperationalError(words))
    assert sqlite_database.dialect.is_transient(error) is passing


# --- real ones ---------------------------------------------------------------------------------


def test_of_two_that_deadlock_both_get_through(mariadb_database: Database) -> None:
    """One is rolled back by the server, and runs again as a whole."""
    world = World(mariadb_database)
    low, high = world.one_shot(), world.one_shot()
    meeting = threading.Barrier(2)
    runs: list[str] = []

    def locking(name: str, first: int, second: int) -> None:
        def work(tx: Tx) -> None:
            runs.append(name)
            bump(tx, first)
            if len(runs) <= 2:
                meeting.wait(10)  # each has its first row now, and wants the other's
            bump(tx, second)

        mariadb_database.write(work)

    at_once(lambda: locking("a", low, high), lambda: locking("b", high, low))
    assert len(runs) == 3, "nobody was rolled back"
    assert [world.task(i).priority for i in (low, high)] == [7, 7]


def bump(tx: Tx, task_id: int) -> None:
    tx.execute(update(task).where(task.c.id == task_id).values(priority=task.c.priority + 1))


def test_a_row_that_stays_locked_is_waited_for_and_then_tried_again(
    mariadb_database: Database,
) -> None:
    world = World(mariadb_database)
    single = world.one_shot()
    waits: list[float] = []
    locked, free = threading.Event(), threading.Event()

    def holder(tx: Tx) -> None:
        bump(tx, single)
        locked.set()
        assert free.wait(30)

    def wanting(tx: Tx) -> None:
        patience = 5 if waits else 1
        tx.connection.exec_driver_sql(f"SET innodb_lock_wait_timeout = {patience}")
        waits.append(time.monotonic())
        if len(waits) == 2:
            free.set()
        bump(tx, single)

    def second() -> None:
        assert locked.wait(10)
        mariadb_database.write(wanting)

    at_once(lambda: mariadb_database.write(holder), second)
    assert len(waits) == 2
    assert world.task(single).priority == 7


def test_a_server_that_is_killed_in_the_middle_is_waited_for(own_mariadb: MariaDB) -> None:
    database = Database(own_mariadb.create_database("drumline"))
    with database.engine.connect() as connection:
        pause.create(connection)
    runs: list[int] = []

    def work(tx: Tx) -> None:
        runs.append(len(runs))
        pauses.add(tx, REGION, f"run {len(runs)}")
        if len(runs) == 1:
            own_mariadb.kill()
            own_mariadb.start()

    database.write(work)
    assert database.read(lambda tx: pauses.current(tx, REGION)) == ["run 2"]
    own_mariadb.kill()
    with pytest.raises(StoreUnavailable):
        database.read(lambda tx: pauses.current(tx, REGION))
    own_mariadb.start()
    assert database.read(lambda tx: pauses.current(tx, REGION)) == ["run 2"]
    database.close()


def test_a_writer_that_does_not_queue_is_waited_for(sqlite_database: Database) -> None:
    """Such as the sqlite3 shell: it takes SQLite's lock and not the file lock in front of it."""
    path = sqlite_database.engine.url.database
    assert path is not None
    sqlite_database.write(lambda tx: tx.connection.exec_driver_sql("PRAGMA busy_timeout=10"))
    stranger = sqlite3.connect(path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    runs = []

    def work(tx: Tx) -> None:
        runs.append("ran")
        pauses.add(tx, REGION, "x")

    with pytest.raises(StoreUnavailable, match="locked"):
        sqlite_database.write(work, tries=2)
    assert runs == []
    stranger.execute("ROLLBACK")
    sqlite_database.write(work)
    sqlite_database.write(lambda tx: tx.connection.exec_driver_sql("PRAGMA busy_timeout=5000"))
    stranger.close()
    assert runs == ["ran"]


# --- the file lock -----------------------------------------------------------------------------


def lock_file(database: Database) -> Path:
    assert isinstance(database.dialect, dialects.SQLite)
    return Path(f"{database.dialect.path}.lock")


def test_writers_of_sqlite_take_turns(sqlite_database: Database) -> None:
    inside: list[int] = []

    def work(tx: Tx) -> None:
        inside.append(1)
        assert len(inside) == 1
        pauses.add(tx, REGION, "x")
        time.sleep(0.002)
        inside.pop()

    def writer() -> None:
        for _ in range(10):
            sqlite_database.write(work)

    at_once(writer, writer, writer)


def test_patience_ends_with_a_clear_error_and_no_retry(sqlite_database: Database) -> None:
    path = sqlite_database.engine.url.database
    patient = Database(f"sqlite:///{path}", patience=0.1)
    ran: list[int] = []
    held = os.open(lock_file(sqlite_database), os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="is locked"):
        patient.write(lambda tx: ran.append(1))
    assert 0.1 <= time.monotonic() - began < 1
    assert ran == []
    os.close(held)
    patient.write(lambda tx: ran.append(1))
    assert ran == [1]
    patient.close()


def test_a_reader_does_not_wait_for_a_writer(sqlite_database: Database) -> None:
    held = os.open(lock_file(sqlite_database), os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert sqlite_database.read(lambda tx: pauses.current(tx, REGION)) == []
    os.close(held)


def test_an_error_in_the_work_frees_the_lock(sqlite_database: Database) -> None:
    with pytest.raises(ValueError, match="ours"):
        sqlite_database.write(Failing(1, ValueError("ours")))
    other = Database(f"sqlite:///{sqlite_database.engine.url.database}", patience=0)
    assert other.write(lambda tx: 1) == 1
    other.close()


# --- what every query takes for granted --------------------------------------------------------


def test_rowcount_counts_rows_found_and_not_rows_changed(world: World) -> None:
    single = world.one_shot(priority=5)

    def same(tx: Tx) -> int:
        statement = update(task).where(task.c.id == single).values(priority=5)
        return int(tx.execute(statement).rowcount)

    assert world.database.write(same) == 1
    assert world.database.write(same) == 1


def test_upsert_replaces_what_stands_under_the_same_key(world: World) -> None:
    def put(tx: Tx, created_at: int, *types: str) -> None:
        rows = [{"region": REGION, "type": t, "created_at": created_at} for t in types]
        tx.execute(tx.dialect.upsert(pause), rows)

    world.database.write(lambda tx: put(tx, 1, "a", "b"))
    world.database.write(lambda tx: put(tx, 2, "b", "c"))
    found = {row.type: row.created_at for row in world.rows(PauseRow)}
    assert found == {"a": 1, "b": 2, "c": 2}


def test_a_write_sees_what_was_committed_while_it_ran(mariadb_database: Database) -> None:
    """READ COMMITTED: after a race, a second look must not show the old picture."""
    world = World(mariadb_database)
    single = world.one_shot()

    def work(tx: Tx) -> tuple[int, int]:
        def look() -> int:
            found = tx.execute(select(task.c.priority).where(task.c.id == single))
            return int(found.scalar_one())

        first = look()
        thread = threading.Thread(target=lambda: world.set_task(single, priority=9))
        thread.start()
        thread.join()
        return first, look()

    assert world.database.write(work) == (5, 9)


def test_sqlite_keeps_what_was_committed_over_a_power_cut(tmp_path: Path) -> None:
    """And only one process checkpoints: see the dialect."""
    database = Database(f"sqlite:///{tmp_path}/drumline.db")
    with database.engine.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "wal_autocheckpoint")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0}
    database.close()


def test_text_and_numbers_come_back_as_they_were(world: World) -> None:
    text = "Ölstand 🥁 \0 '\"\\ %s :x \N{COMBINING ACUTE ACCENT}" + "x" * 70_000
    single = world.one_shot(param=text, due_at=2**62, target_name="  padded  ")
    row = world.task(single)
    assert (row.param, row.due_at, row.target_name) == (text, 2**62, "  padded  ")


def test_the_databases_clock_is_near_ours(world: World) -> None:
    assert abs(world.database.now() - time.time_ns() // 1000) < 5_000_000
    assert world.database.write(lambda tx: tx.now) <= world.database.now()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "postgresql://x/y", "mysql://host", "nonsense"]
)
def test_a_database_that_cannot_serve_is_refused(url: str) -> None:
    with pytest.raises(BadConfig):
        Database(url)


def test_a_wrong_url_is_shown_without_its_password() -> None:
    with pytest.raises(BadConfig) as caught:
        Database("mysql//root:secret@host/db")
    assert "secret" not in str(caught.value)
