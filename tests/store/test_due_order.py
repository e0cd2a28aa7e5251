"""The scan: the most urgent first, then the oldest, page by page, along the index alone."""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, text

from drumline.domain.states import TaskState
from drumline.store.database import Database
from drumline.store.tables import ANYONE, NOBODY, task
from drumline.store.task import scan, tasks
from drumline.store.task.scan import Cursor
from drumline.store.tx import Tx
from tests.store.conftest import wipe
from tests.store.world import REGION, World, new_task

UNTIL = 100

rows = st.lists(
    st.fixed_dictionaries(
        {
            "priority": st.integers(0, 9),
            "due_at": st.integers(UNTIL - 4, UNTIL + 2),
            "owner": st.sampled_from([ANYONE, ANYONE, ANYONE, NOBODY, 7, -1]),
            "region": st.sampled_from([REGION, REGION, REGION, "elsewhere"]),
        }
    ),
    max_size=40,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=rows, limit=st.integers(1, 8), ahead=st.integers(-3, 3))
def test_pages_are_what_a_sorted_list_would_give(
    database: Database, rows: list[dict[str, Any]], limit: int, ahead: int
) -> None:
    wipe(database)
    database.write(lambda tx: tasks.add(tx, [new_task(tx) | row for row in rows]))
    until = UNTIL + ahead
    with database.engine.connect() as connection:
        stored = connection.execute(task.select()).all()
    wanted = sorted(
        (-row.priority, row.due_at, row.id)
        for row in stored
        if row.owner == ANYONE and row.region == REGION and row.due_at <= until
    )
    found = [
        (-cursor.priority, cursor.due_at, cursor.id)
        for cursor, _ in paged(database, until, limit, len(wanted))
    ]
    assert found == wanted


def paged(
    database: Database, until: int, limit: int, expected: int
) -> Iterator[tuple[Cursor, int]]:
    """All there is, by asking for page after page."""
    cursor: Cursor | None = None
    for _ in range(expected + 2):
        page = database.read(
            partial(scan.ids, region=REGION, until=until, after=cursor, limit=limit)
        )
        assert len(page) <= limit
        yield from page
        if len(page) < limit:
            return
        cursor = page[-1][0]
    pytest.fail("the pages do not end")


def test_what_comes_before_the_cursor_meanwhile_is_found_from_the_top(world: World) -> None:
    low = world.one_shot(priority=1)
    ((cursor, _),) = world.database.read(lambda tx: scan.ids(tx, REGION, 2**60, None, 10))
    assert cursor.id == low
    high = world.one_shot(priority=9)
    after = world.database.read(lambda tx: scan.ids(tx, REGION, 2**60, cursor, 10))
    assert after == []
    again = world.database.read(lambda tx: scan.ids(tx, REGION, 2**60, None, 10))
    assert [c.id for c, _ in again] == [high, low]


def test_versions_are_those_of_the_rows(world: World) -> None:
    single = world.one_shot()
    world.set_task(single, version=41)
    ((_, version),) = world.database.read(lambda tx: scan.ids(tx, REGION, 2**60, None, 1))
    assert version == 41


def test_a_due_task_carries_what_its_keeper_and_runner_need(world: World) -> None:
    from drumline.task import Task

    batch_id, (member,) = world.batch(
        1,
        param='{"a":[1]}',
        after_update='"new"',
        target_id="t-1",
        target_name="der Söldner",
        target_env="prod",
        env="prod",
        timeout_ms=1234,
        captured=[0],
    )
    world.set_batch(batch_id, creator="ann", az="az1", extra_info='{"ticket":7}')
    world.set_task(member, attempt=2, retry_time=1, failures=3, deaths=1, version=5)
    (due,) = world.dues()
    assert (due.id, due.version, due.fence) == (member, 5, 6)
    assert (due.status, due.batch_id, due.timeout_ms) == (TaskState.PENDING, batch_id, 1234)
    assert (due.attempt, due.retry_time, due.failures, due.deaths) == (2, 1, 3, 1)
    seen = Task(due)
    assert (seen.param, seen.before_update, seen.after_update) == ({"a": [1]}, "old", "new")
    assert (seen.target_id, seen.target_name, seen.target_env) == ("t-1", "der Söldner", "prod")
    assert (seen.attempt, seen.fence, seen.region) == (3, 6, REGION)
    assert seen.batch is not None
    assert (seen.batch.id, seen.batch.creator, seen.batch.az) == (batch_id, "ann", "az1")
    assert seen.batch.extra_info == {"ticket": 7}


def test_a_batch_is_read_once_for_all_its_tasks(world: World) -> None:
    batch_id, members = world.batch(3)
    known: dict[int, bytes] = {}
    world.database.read(lambda tx: scan.load(tx, members[:1], known))
    assert set(known) == {batch_id}
    known[batch_id] = b"as it was"
    (due,) = world.database.read(lambda tx: scan.load(tx, members[1:2], known))
    assert b"as it was" in due.body


def test_what_was_taken_between_the_two_reads_is_left_out(world: World) -> None:
    _, members = world.batch(2)
    world.acquire(world.keeper(), members[:1])
    found = world.database.read(lambda tx: scan.load(tx, members, {}))
    assert [due.id for due in found] == members[1:]


# --- the plan ----------------------------------------------------------------------------------


@pytest.fixture
def crowded(database: Database) -> Database:
    return crowd(database)


def crowd(database: Database) -> Database:
    """Many rows of the kinds that a scan must not walk through."""

    def work(tx: Tx) -> None:
        kinds = itertools.product((3, 5, 7), (ANYONE, NOBODY, 12), (-1, 10**15))
        common = new_task(tx)
        for priority, owner, due in kinds:
            start = {"priority": priority, "owner": owner}
            many = [common | start | {"due_at": max(1, due + n)} for n in range(300)]
            tx.execute(insert(task), many)
        tx.execute(insert(task), [common | {"owner": 13}] * 5)

    database.write(work)
    with database.engine.connect() as connection:
        analyze = "ANALYZE" if database.dialect.name == "sqlite" else "ANALYZE TABLE task"
        connection.execute(text(analyze))
        connection.commit()
    return database


@pytest.mark.parametrize("after", [None, Cursor(5, 150, 700)])
def test_each_part_of_a_scan_reads_its_range_of_the_index_and_sorts_nothing(
    crowded: Database, after: Cursor | None
) -> None:
    statements: list[Any] = []

    def spy(tx: Tx) -> None:
        really = tx.execute

        def execute(statement: Any, *arguments: Any) -> Any:
            statements.append(statement.params(*arguments))
            return really(statement, *arguments)

        tx.execute = execute  # type: ignore[assignment]
        scan.ids(tx, REGION, 10**9, after, 50)

    crowded.read(spy)
    (statement,) = statements
    plan = explain(crowded, statement)
    parts = 10 if after is None else 7
    if crowded.dialect.name == "sqlite":
        searches = [line for line in plan if "task" in line]
        assert len(searches) == parts
        for line in searches:
            assert "SEARCH task USING" in line and "INDEX ix_task_queue" in line
            assert "region=? AND owner=? AND priority=? AND due_at" in line
        assert not any("TEMP B-TREE" in line for line in plan)
    else:
        reads = [row for row in plan if row["table"] == "task"]
        assert len(reads) == parts
        for row in reads:
            assert row["key"] == "ix_task_queue", row
            assert row["type"] in ("range", "ref"), row
            extra = row["Extra"] or ""
            assert "filesort" not in extra and "temporary" not in extra, row


def explain(database: Database, statement: Any) -> list[Any]:
    compiled = str(statement.compile(database.engine, compile_kwargs={"literal_binds": True}))
    with database.engine.connect() as connection:
        if database.dialect.name == "sqlite":
            return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}")]
        found = connection.exec_driver_sql(f"EXPLAIN {compiled}".replace("%", "%%"))
        return [dict(row._mapping) for row in found]


def test_a_scan_reads_no_more_than_it_is_asked_for(mariadb_database: Database) -> None:
    """Counted by the server: neither future work nor less urgent work is walked through."""

    def reads(tx: Tx) -> int:
        found = tx.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'"))
        return sum(int(value) for name, value in found if name != "Handler_read_rnd_next")

    def work(tx: Tx) -> int:
        before = reads(tx)
        assert len(scan.ids(tx, REGION, 10**9, None, 20)) == 20
        return reads(tx) - before

    # At most 20 of each of the ten priorities, and a step into each range.
    assert crowd(mariadb_database).read(work) <= 10 * (20 + 2)


def test_what_a_keeper_holds_is_found_by_the_same_index(crowded: Database) -> None:
    statement = (
        task.select()
        .with_only_columns(task.c.id, task.c.fence)
        .where(task.c.region == REGION, task.c.owner == 13)
    )
    plan = explain(crowded, statement)
    if crowded.dialect.name == "sqlite":
        assert "INDEX ix_task_queue (region=? AND owner=?" in plan[0]
    else:
        assert plan[0]["key"] == "ix_task_queue"
