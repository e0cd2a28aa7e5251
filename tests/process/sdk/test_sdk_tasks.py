"""Single tasks through the SDK: scheduled by message or in a transaction of the caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine

from drumline import Client, enqueue
from drumline.client.client import TaskFailed
from drumline.errors import Conflict, NotFound, WrongUse
from tests.process.sdk_stack import WAIT, calls, database_url
from tests.stack import Stack

# --- single tasks --------------------------------------------------------------------------------


def test_a_task_returns_its_result(client: Client) -> None:
    task = client.schedule("demo.echo", {"a": [1, None]})
    assert task.result(WAIT) == {"a": [1, None]}
    assert client.task(task.id).refresh().status == "success"


def test_a_failed_task_has_the_error_of_its_handler(client: Client) -> None:
    task = client.schedule("demo.fail")
    with pytest.raises(TaskFailed, match=r"it is fail \(error\)\. RuntimeError: demo\.fail alw"):
        task.result(WAIT)
    task.retry()
    assert task.wait(WAIT) == "fail"
    assert task.details["attempt"] == 2


def test_a_task_waits_for_its_time_and_can_be_rescheduled(client: Client) -> None:
    task = client.schedule("demo.echo", 1, delay=3600, instance="moved")
    with pytest.raises(Conflict, match="moved"):
        client.schedule("demo.echo", 2, instance="moved")
    assert task.status == "pending"
    task.reschedule(delay=0, priority=9)
    assert task.result(WAIT) == 1
    assert task.details["priority"] == 9


def test_a_waiting_task_is_cancelled_at_once_and_a_running_one_by_force(
    client: Client, tmp_path: Path
) -> None:
    waiting = client.schedule("demo.echo", at="2040-01-01T00:00:00Z")
    assert waiting.cancel() == "cancel"
    assert waiting.wait(WAIT) == "cancel"
    running = client.schedule("t.gate", str(tmp_path / "gate"))
    until(lambda: running.refresh().status == "running")
    assert running.cancel(force=True) == "killing"
    assert running.wait(WAIT) == "cancel"
    with pytest.raises(TaskFailed):
        running.result(1)


def until(condition: Callable[[], object], seconds: float = WAIT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.01)


def test_thousands_in_one_message(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    done = calls(client, monkeypatch)
    assert client.schedule_many("demo.noop", range(5000)) == 5000
    assert done == ["task.schedule_many"]
    instances = [None, *(f"many-{n}" for n in range(5500))]
    assert client.schedule_many("t.about", range(5501), instances=instances, delay=3600) == 5501
    assert done[1:] == ["task.schedule_many"] * 2
    with pytest.raises(Conflict, match="'many-7'"):
        client.schedule_many("t.about", [1, 2], instances=["many-new", "many-7"], delay=3600)
    late = client.schedule("t.about", instance="many-new", delay=3600)
    assert late.cancel() == "cancel", "the refused message wrote nothing"


@pytest.mark.parametrize(
    ("params", "instances", "words"),
    [
        ([1, 2], ["a"], "fewer instances"),
        ([1], ["a", "b"], "more instances"),
        ([1, object()], None, "param 1 cannot be sent"),
    ],
)
def test_wrong_params_and_instances_are_refused(
    client: Client, params: list[Any], instances: list[str | None] | None, words: str
) -> None:
    with pytest.raises(WrongUse, match=words):
        client.schedule_many("t.about", params, instances=instances, delay=3600)


# --- enqueueing ----------------------------------------------------------------------------------


def test_an_enqueued_task_runs_after_the_commit(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    engine = create_engine(database_url(stack), poolclass=NullPool)
    trace = tmp_path / "trace"
    with engine.connect() as connection:
        lost = enqueue(connection, "t.once", str(trace))
        connection.rollback()
        kept = enqueue(connection, "t.once", str(trace))
        connection.commit()
    began = time.monotonic()
    assert client.task(kept).wait(WAIT) == "success"
    assert time.monotonic() - began < 5, "the scanner reads due tasks every second"
    assert trace.read_text() == "x"
    if lost != kept:
        with pytest.raises(NotFound):
            client.task(lost).refresh()
    client.scan_now()
