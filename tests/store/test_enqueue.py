"""Tasks enqueued inside the caller's own transaction: they are his until he commits."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pymysql
import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    NullPool,
    Table,
    create_engine,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from drumline import enqueue, enqueue_many
from drumline.domain.policy import HandlerSpec
from drumline.domain.states import TaskState
from drumline.errors import Conflict, SchemaMismatch, UnknownHandler, WrongUse
from drumline.store import instances
from drumline.store.database import Database
from drumline.store.tables import task
from tests.store.world import REGION, World

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}},
    "required": ["to"],
}
HANDLERS = (
    HandlerSpec("mail", "mail.send", timeout=7.5),
    HandlerSpec("mail", "mail.checked", schema=SCHEMA),
    HandlerSpec("a", "twice"),
    HandlerSpec("b", "twice"),
)

order = Table("an_order", MetaData(), Column("id", Integer, primary_key=True))
"""A table of the caller's, in the same database."""


class Caller:
    """Somebody's program, with its own way to the database."""

    def __init__(self, world: World, engine: Engine) -> None:
        self.world = world
        self.engine = engine

    def raw(self) -> Any:
        """A connection of the driver's own, as a program without SQLAlchemy opens it."""
        url = self.engine.url
        if url.get_backend_name() == "sqlite":
            return sqlite3.connect(url.database or "", timeout=10)
        return pymysql.connect(
            host=url.host, port=url.port or 0, user=url.username, database=url.database
        )

    def tasks(self) -> list[Any]:
        return list(self.world.rows(task))

    def orders(self) -> list[int]:
        with self.engine.connect() as connection:
            return list(connection.scalars(select(order.c.id)))


@pytest.fixture
def caller(world: World) -> Iterator[Caller]:
    world.announce(*HANDLERS)
    engine = create_engine(
        world.database.engine.url.set(drivername=world.database.engine.url.drivername),
        poolclass=NullPool,
    )
    order.create(engine)
    yield Caller(world, engine)
    order.drop(engine)
    engine.dispose()


# --- whose transaction it is -----------------------------------------------------------------


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


# --- what is written -------------------------------------------------------------------------


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
    assert len({row.shard for row in rows}) > 1


def test_the_region_of_the_configuration_is_the_one_that_is_meant(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMLINE_REGION", REGION)
    with caller.engine.begin() as theirs:
        enqueue(theirs, "mail.send")
    (row,) = caller.tasks()
    assert row.region == REGION


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"type": "no.such"}, UnknownHandler, ["no.such", "mail.send"]),
        ({"type": "twice"}, UnknownHandler, ["twice"]),
        ({"type": "mail.send", "region": "elsewhere"}, UnknownHandler, ["none yet"]),
        ({"type": ""}, WrongUse, ["type"]),
        ({"type": "mail.send", "priority": 10}, WrongUse, ["priority"]),
        ({"type": "mail.send", "timeout": -1}, WrongUse, ["timeout"]),
        ({"type": "mail.send", "delay": -1}, WrongUse, ["delay"]),
        ({"type": "mail.send", "at": datetime(2030, 1, 1)}, WrongUse, ["time zone"]),
        ({"type": "mail.send", "at": "soon"}, WrongUse, ["'soon' is not a time"]),
        ({"type": "mail.send", "at": "2030-01-01T00:00:00Z", "delay": 1}, WrongUse, ["not both"]),
        ({"type": "mail.send", "param": object()}, WrongUse, ["does not fit into JSON"]),
        ({"type": "mail.send", "param": "\udc80"}, WrongUse, ["does not fit into JSON"]),
        ({"type": "mail.send", "param": "x" * 2**20}, WrongUse, ["1048578 bytes"]),
        ({"type": "mail.send", "instance": "x" * 127}, WrongUse, ["instance_id"]),
        ({"type": "mail.checked", "param": {}}, WrongUse, ["param.to: is missing"]),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    caller: Caller, arguments: dict[str, Any], kind: type[Exception], words: list[str]
) -> None:
    arguments = {"region": REGION} | arguments
    with caller.engine.begin() as theirs:
        with pytest.raises(kind) as caught:
            enqueue(theirs, **arguments)
        for word in words:
            assert word in str(caught.value)
    assert caller.tasks() == []


def test_a_bad_param_among_many_is_named_by_its_number(caller: Caller) -> None:
    good, bad = {"to": "a"}, {"to": 7}
    with (
        caller.engine.begin() as theirs,
        pytest.raises(WrongUse, match=r"param 2: param\.to: must be of type string"),
    ):
        enqueue_many(theirs, "mail.checked", [good, good, bad], region=REGION)
    assert caller.tasks() == []


@pytest.mark.parametrize("instances", [["a"], ["a", "b", "a"], ["a", "b", "held"]])
def test_instances_must_be_one_for_each_and_unique(caller: Caller, instances: list[str]) -> None:
    with caller.engine.begin() as theirs:
        enqueue(theirs, "mail.send", instance="held", region=REGION)
        with pytest.raises((WrongUse, Conflict)):
            enqueue_many(theirs, "mail.send", [1, 2, 3], instances=instances, region=REGION)
    assert len(caller.tasks()) == 1


def test_an_instance_is_unique_while_it_is_unfinished_whichever_way_it_came(
    caller: Caller,
) -> None:
    world = caller.world
    with caller.engine.begin() as theirs:
        enqueue_many(theirs, "mail.send", [1], instances=["june"], region=REGION)
        with pytest.raises(Conflict, match=r"mail\.send with instance id 'june' is already"):
            enqueue(theirs, "mail.send", instance="june", region=REGION)
        enqueue(theirs, "mail.checked", {"to": "a"}, instance="june", region=REGION)
    with pytest.raises(Conflict):
        world.database.write(lambda tx: instances.claim(tx, REGION, "mail.send", "june"))
    world.run(world.keeper())
    with caller.engine.begin() as theirs:
        assert enqueue(theirs, "mail.send", instance="june", region=REGION)


def test_of_two_at_the_same_moment_one_is_refused(caller: Caller) -> None:
    """The second cannot see the first, which is not committed; the index decides."""
    world = caller.world

    def second() -> int:
        with caller.engine.begin() as theirs:
            return enqueue(theirs, "mail.send", instance="june", region=REGION)

    with ThreadPoolExecutor(1) as pool:
        with caller.engine.begin() as theirs:
            enqueue(theirs, "mail.send", instance="june", region=REGION)
            begun: Future[int] = pool.submit(second)
            if world.database.dialect.name == "mysql":
                # Wait until it hangs in its insert, behind ours. The view shows what it showed
                # before if it is asked again within a tenth of a second.
                waiting = text("SELECT COUNT(*) FROM information_schema.innodb_lock_waits")
                while not theirs.scalar(waiting):
                    with suppress(TimeoutError):
                        pytest.fail(f"it did not wait: {begun.result(0.2)}")
        with pytest.raises(Conflict, match=r"june|same instance id"):
            begun.result(30)
    assert len(caller.tasks()) == 1


@pytest.mark.parametrize("what", ["engine", "nothing", "async"])
def test_what_is_no_connection_is_refused_by_name(caller: Caller, what: str) -> None:
    given: Any = {
        "engine": caller.engine,
        "nothing": None,
        "async": AsyncConnection.__new__(AsyncConnection),
    }[what]
    with pytest.raises(WrongUse) as caught:
        enqueue(given, "mail.send")
    words = {"engine": "Engine(", "nothing": "None is not", "async": "run_sync"}
    assert words[what] in str(caught.value)


def test_a_database_of_another_kind_is_refused_by_name() -> None:
    pretending = create_engine("sqlite://")
    pretending.dialect.name = "oracle"
    with pretending.connect() as theirs, pytest.raises(WrongUse, match="is to oracle; known: "):
        enqueue(theirs, "mail.send")
    pretending.dispose()


def test_a_database_without_drumlines_tables_is_told_so(database_url: str) -> None:
    engine = create_engine(database_url, poolclass=NullPool)
    with engine.connect() as theirs, pytest.raises(SchemaMismatch, match="drumline db upgrade"):
        enqueue(theirs, "mail.send")


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
