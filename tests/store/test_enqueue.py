"""Tasks enqueued inside the caller's own transaction: they are his until he commits."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pymysql
import pytest
from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from drumline import enqueue, enqueue_many
from drumline.domain.states import TaskState
from drumline.errors import Conflict, UnknownHandler
from drumline.store.database import Database
from tests.store.caller import Caller, order
from tests.store.world import REGION

# --- whose transaction it is ---------------------------------------------------------------------


def _connection(caller: Caller) -> Any:
    return caller.engine.connect()


def _session(caller: Caller) -> Any:
    return Session(caller.engine)


def _scoped_session(caller: Caller) -> Any:
    return scoped_session(sessionmaker(caller.engine))


def _raw(caller: Caller) -> Any:
    return caller.raw()


def _raw_of_pool(caller: Caller) -> Any:
    return caller.engine.raw_connection()


def _insert_order(theirs: Any, number: int) -> None:
    if isinstance(theirs, Connection | Session | scoped_session):
        theirs.execute(order.insert().values(id=number))
    else:
        with closing(theirs.cursor()) as cursor:
            cursor.execute(f"INSERT INTO an_order (id) VALUES ({number:d})")  # noqa: S608


WAYS = pytest.mark.parametrize(
    "way",
    [_connection, _session, _scoped_session, _raw, _raw_of_pool],
    ids=lambda way: way.__name__,
)


@WAYS
def test_the_callers_rollback_leaves_nothing(caller: Caller, way: Callable[[Caller], Any]) -> None:
    with closing(way(caller)) as theirs:
        _insert_order(theirs, 1)
        assert enqueue(theirs, "mail.send", region=REGION) > 0
        assert enqueue_many(theirs, "mail.send", range(10), region=REGION) == 10
        theirs.rollback()
    assert (caller.orders(), caller.tasks()) == ([], [])


@WAYS
def test_the_callers_commit_makes_it_due(caller: Caller, way: Callable[[Caller], Any]) -> None:
    with closing(way(caller)) as theirs:
        _insert_order(theirs, 1)
        task_id = enqueue(theirs, "mail.send", {"to": "ä"}, instance="order-1", region=REGION)
        assert caller.tasks() == [], "nobody sees it before the commit"
        theirs.commit()
    assert caller.orders() == [1]
    (row,) = caller.tasks()
    assert (row.id, row.status, row.type, row.target_type) == (
        task_id,
        TaskState.PENDING,
        "mail.send",
        "mail",
    )
    assert (row.instance_id, row.priority, row.timeout_ms) == ("order-1", 5, 7500)
    (due,) = caller.world.dues()
    assert due.id == task_id
    assert caller.world.database.now() - due.due_at < 10_000_000
    caller.world.run(caller.world.keeper())
    assert caller.world.task(task_id).status == TaskState.SUCCESS


@WAYS
def test_the_connection_is_as_usable_afterwards_as_before(
    caller: Caller, way: Callable[[Caller], Any]
) -> None:
    with closing(way(caller)) as theirs:
        enqueue(theirs, "mail.send", region=REGION, instance="x")
        with pytest.raises(UnknownHandler):
            enqueue(theirs, "no.such", region=REGION)
        with pytest.raises(Conflict):
            enqueue(theirs, "mail.send", region=REGION, instance="x")
        _insert_order(theirs, 2)
        theirs.commit()
        _insert_order(theirs, 3)
        theirs.rollback()
    assert caller.orders() == [2]
    assert len(caller.tasks()) == 1


def test_raw_connections_may_return_their_rows_as_they_like(caller: Caller) -> None:
    with closing(caller.raw()) as theirs:
        if isinstance(theirs, sqlite3.Connection):
            theirs.row_factory = sqlite3.Row
            theirs.create_function("regexp", 2, lambda pattern, text: "mine")
        else:
            theirs.cursorclass = pymysql.cursors.DictCursor
        enqueue(theirs, "mail.send", region=REGION, instance="x")
        with pytest.raises(Conflict, match="is already scheduled as task"):
            enqueue_many(theirs, "mail.send", [1], instances=["x"], region=REGION)
        if isinstance(theirs, sqlite3.Connection):
            assert theirs.execute("SELECT 'a' REGEXP 'b'").fetchone()[0] == "mine"
        theirs.commit()
    assert len(caller.tasks()) == 1


def test_raw_connections_raise_their_own_drivers_errors(caller: Caller) -> None:
    with closing(caller.raw()) as theirs, closing(caller.raw()) as other:
        kind: type[Exception] = sqlite3.OperationalError
        if isinstance(theirs, sqlite3.Connection):
            other.execute("BEGIN IMMEDIATE")
            theirs.execute("PRAGMA busy_timeout=50")
        else:
            kind = pymysql.err.OperationalError
            _insert_order(other, 1)
            enqueue(other, "mail.send", instance="x", region=REGION)
            theirs.cursor().execute("SET innodb_lock_wait_timeout = 1")
        with pytest.raises(kind):
            enqueue(theirs, "mail.send", instance="x", region=REGION)
        other.rollback()
        theirs.rollback()


def test_two_threads_with_raw_connections_do_not_meet(caller: Caller) -> None:
    def work(number: int) -> int:
        with closing(caller.raw()) as theirs:
            done = enqueue_many(theirs, "mail.send", [number] * 50, region=REGION)
            theirs.commit()
            return done

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(16))) == 800
    assert sorted(int(row.param) for row in caller.tasks()) == sorted(list(range(16)) * 50)


def test_the_gateway_and_the_caller_may_write_at_the_same_time(
    caller: Caller, database: Database
) -> None:
    """An open transaction of the caller's delays a writer; it does not break it."""
    with ThreadPoolExecutor(1) as pool:
        with closing(caller.raw()) as theirs:
            enqueue(theirs, "mail.send", region=REGION)
            other = pool.submit(caller.world.one_shot)
            theirs.commit()
        assert other.result(30) > 0
    assert len(caller.tasks()) == 2


# --- what is written -----------------------------------------------------------------------------


def test_what_can_be_said_about_a_task(caller: Caller) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    with caller.engine.begin() as theirs:
        first = enqueue(theirs, "twice", target_type="b", at=at, priority=9, region=REGION)
        second = enqueue(theirs, "mail.send", delay=60, timeout=1.5, region=REGION)
        third = enqueue(theirs, "mail.send", at="2040-01-01T00:00:00+01:00", region=REGION)
    one, two, three = (caller.world.task(i) for i in (first, second, third))
    assert (one.target_type, one.priority) == ("b", 9)
    assert one.due_at == round(at.timestamp() * 1e6)
    assert abs(two.due_at - two.created_at - 60_000_000) < 1_000
    assert two.timeout_ms == 1500
    assert three.due_at == int(datetime(2039, 12, 31, 23, tzinfo=UTC).timestamp()) * 1_000_000


def test_many_are_written_in_pieces_with_their_instances(caller: Caller) -> None:
    with caller.engine.begin() as theirs:
        total = enqueue_many(
            theirs,
            "mail.send",
            ({"n": n} for n in range(6000)),
            instances=(None if n % 2 else f"i-{n}" for n in range(6000)),
            delay=5,
            region=REGION,
        )
    assert total == 6000
    rows = caller.tasks()
    assert [msgspec.json.decode(row.param)["n"] for row in rows] == list(range(6000))
    assert [row.instance_id for row in rows[:3]] == ["i-0", None, "i-2"]


def test_the_region_of_the_configuration_is_the_one_that_is_meant(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMLINE_REGION", REGION)
    with caller.engine.begin() as theirs:
        enqueue(theirs, "mail.send")
    (row,) = caller.tasks()
    assert row.region == REGION


def test_the_name_is_the_function_however_it_is_imported() -> None:
    """`drumline.enqueue` is a module and a function of the package; the function must win."""
    program = (
        "import drumline.enqueue\n"
        "from drumline.enqueue import enqueue_many\n"
        "from drumline import enqueue\n"
        "assert callable(enqueue) and drumline.enqueue is enqueue\n"
        "import sys\n"
        "assert not {'sqlalchemy', 'zmq', 'sqlite3', 'click'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
