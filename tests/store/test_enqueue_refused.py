"""What cannot be enqueued is named, and nothing of it is written."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection

from drumline import enqueue, enqueue_many
from drumline.errors import Conflict, SchemaMismatch, UnknownHandler, WrongUse
from drumline.store.task import instances
from tests.store.caller import Caller
from tests.store.world import REGION


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
