"""The tables of requests, pauses and handlers."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from drumline.domain.policy import HandlerSpec, OnDeath, Retry
from drumline.errors import Conflict, UnknownHandler
from drumline.store.admin.requests import once
from drumline.store.node import handlers, pauses
from drumline.store.rows import RequestRow
from drumline.store.task import tasks
from drumline.store.tx import Tx
from tests.store.world import (
    REGION,
    PauseRow,
    World,
    at_once,
    commit_of_unknown_fate,
    new_task,
    while_open,
)

# --- requests ----------------------------------------------------------------------------------


def schedule(tx: Tx) -> dict[str, Any]:
    """A change whose executions can be counted."""
    return {"task_id": tasks.add_one(tx, new_task(tx)), "note": "grün"}


def test_a_repeated_request_is_executed_once_and_answered_the_same(world: World) -> None:
    first = once(world.database, "r1", "task.schedule", schedule)
    again = once(world.database, "r1", "task.schedule", schedule)
    assert again == first
    assert [due.id for due in world.dues()] == [first["task_id"]]
    other = once(world.database, "r2", "task.schedule", schedule)
    assert other != first


def test_two_concurrent_copies_of_a_request_are_executed_once(world: World) -> None:
    for number in range(5):
        ask = partial(once, world.database, f"r{number}", "task.schedule", schedule)
        answers = at_once(ask, ask, ask, ask)
        assert all(answer == answers[0] for answer in answers)
        assert len(world.dues()) == number + 1


def test_a_second_copy_waits_for_the_first_and_gets_its_answer(world: World) -> None:
    """The first copy is between its insert and its commit."""
    asked: list[Future[dict[str, Any]]] = []

    def slow(tx: Tx) -> dict[str, Any]:
        answer: dict[str, Any] = schedule(tx)
        if not asked:
            asked.append(pool.submit(once, world.database, "r", "task.schedule", schedule))
            with suppress(TimeoutError):  # it waits for the first copy
                asked[0].exception(0.3)
        return answer

    with ThreadPoolExecutor(1) as pool:
        first = once(world.database, "r", "task.schedule", slow)
        assert asked[0].result(30) == first
    assert [due.id for due in world.dues()] == [first["task_id"]]


def test_a_request_with_a_commit_of_unknown_fate_is_executed_once(world: World) -> None:
    with commit_of_unknown_fate(world.database):
        answer = once(world.database, "r", "task.schedule", schedule)
    assert [due.id for due in world.dues()] == [answer["task_id"]]


def test_a_failed_request_is_not_stored(world: World) -> None:
    def refuse(tx: Tx) -> dict[str, Any]:
        schedule(tx)
        raise Conflict(reason="not now")

    with pytest.raises(Conflict, match="not now"):
        once(world.database, "r", "task.schedule", refuse)
    assert world.dues() == []
    assert world.rows(RequestRow) == []
    assert once(world.database, "r", "task.schedule", schedule)["task_id"]


def test_a_request_id_of_another_command_is_refused(world: World) -> None:
    once(world.database, "r", "task.schedule", schedule)
    with pytest.raises(Conflict, match=r"was a task\.schedule"):
        once(world.database, "r", "batch.cancel", schedule)
    assert len(world.dues()) == 1


# --- pauses ------------------------------------------------------------------------------------


def paused(world: World) -> list[str]:
    return world.database.read(lambda tx: pauses.current(tx, REGION))


def test_a_pause_is_kept_until_it_is_removed(world: World) -> None:
    for name in ("mail.send", "cdc_job_stop", "mail.send"):
        world.database.write(partial(pauses.add, region=REGION, type=name))
    world.database.write(lambda tx: pauses.add(tx, "elsewhere", "other"))
    assert paused(world) == ["cdc_job_stop", "mail.send"]
    assert world.database.write(lambda tx: pauses.remove(tx, REGION, "mail.send"))
    assert not world.database.write(lambda tx: pauses.remove(tx, REGION, "mail.send"))
    assert paused(world) == ["cdc_job_stop"]


def test_concurrent_pauses_of_a_type_both_succeed(world: World) -> None:
    while_open(
        world.database,
        lambda tx: pauses.add(tx, REGION, "mail.send"),
        lambda: world.database.write(lambda tx: pauses.add(tx, REGION, "mail.send")),
    )
    assert paused(world) == ["mail.send"]
    assert len(world.rows(PauseRow)) == 1


# --- handlers ----------------------------------------------------------------------------------

STOP = HandlerSpec(
    "cdc",
    "job_stop",
    timeout=7.5,
    retry=Retry(retries=3, delay=0.5),
    on_death=OnDeath.FAIL,
    captures=True,
    rolls_back=True,
    schema={"type": "object", "title": "größe"},
)


def find(world: World, type: str, target_type: str | None = None) -> HandlerSpec:
    return world.database.read(lambda tx: handlers.find(tx, REGION, type, target_type))


def test_an_announced_manifest_is_read_back_unchanged(world: World) -> None:
    world.announce(STOP, HandlerSpec("panama", "migrate"))
    known = world.database.read(lambda tx: handlers.known(tx, REGION))
    assert known == [STOP, HandlerSpec("panama", "migrate")]
    assert world.database.read(lambda tx: handlers.known(tx, "elsewhere")) == []


def test_a_later_announcement_replaces_the_earlier(world: World) -> None:
    world.announce(HandlerSpec("cdc", "job_stop", timeout=1), HandlerSpec("cdc", "job_start"))
    world.announce(STOP)
    assert find(world, "job_stop") == STOP
    assert find(world, "job_start").timeout == 20


def test_workers_that_announce_at_once_do_not_disturb_each_other(world: World) -> None:
    specs = [HandlerSpec("target", f"type {n}") for n in range(20)]
    at_once(*[lambda: world.announce(*specs)] * 4)
    assert len(world.database.read(lambda tx: handlers.known(tx, REGION))) == 20


def test_a_type_is_found_alone_or_with_its_target_type(world: World) -> None:
    world.announce(STOP, HandlerSpec("panama", "job_stop"), HandlerSpec("panama", "migrate"))
    assert find(world, "migrate").target_type == "panama"
    assert find(world, "job_stop", "cdc") == STOP
    with pytest.raises(UnknownHandler, match="migrate"):
        find(world, "no_such")
    with pytest.raises(UnknownHandler):
        find(world, "job_stop")  # two target types have it
    with pytest.raises(UnknownHandler):
        find(world, "migrate", "cdc")


def test_the_error_says_that_no_handler_was_announced(world: World) -> None:
    world.announce()
    with pytest.raises(UnknownHandler, match="none yet"):
        find(world, "anything")
