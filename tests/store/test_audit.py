"""The audit trail: every change through either door, done or refused, is one line of it."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from drumline import commands
from drumline.client.control import new_request_id
from drumline.command_layer import execute
from drumline.errors import Conflict, DrumlineError, NotFound, StoreUnavailable, WrongUse
from drumline.store.admin import audit
from drumline.store.database import Database
from drumline.store.tables import audit as audit_table
from drumline.store.tables import task
from tests.store.desk import STRICT, Desk
from tests.store.job_samples import HTTP, SAMPLE
from tests.store.world import SPEC, World, commit_of_unknown_fate, passing_fault
from tests.web_site import Site

HOUR = 3_600_000_000


class Door(Desk):
    """Commands as the control socket has them done."""

    def __call__(
        self, command_name: str, request_id: str | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        kind = commands.by_name(command_name)
        return execute.execute(kind, arguments, request_id or new_request_id(), self.context)

    def trail(self, **filters: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self("audit.list", **filters)["audit"]
        return found


@pytest.fixture
def door(world: World) -> Door:
    world.announce(SPEC, STRICT, HTTP)
    return Door(world.database)


@pytest.fixture
def site(door: Door) -> Iterator[Site]:
    with Site(door.context) as site:
        yield site


def test_a_change_is_one_line(door: Door) -> None:
    made = door("task.schedule", "r1", type=SPEC.type, param={"password": "sesame", "n": 1})
    (line,) = door.trail()
    assert line.pop("at") and line.pop("id")
    assert line.pop("arguments") == {
        "type": SPEC.type,
        "param": {"password": "***", "n": 1},
    }
    assert line == {
        "actor": "tester",
        "door": "control",
        "command": "task.schedule",
        "subject": f"task {made['task_id']}",
        "result": "done",
        "reason": None,
        "request_id": "r1",
    }


def test_what_was_refused_is_one_line_too(door: Door) -> None:
    with pytest.raises(NotFound):
        door("job.enable", job="nosuch")
    with pytest.raises(WrongUse):
        door("job.create", name="x", cron_expr=7)
    with pytest.raises(WrongUse):
        door("task.schedule", "r" * 65, type=SPEC.type)
    unread, wrong, missing = door.trail()
    assert (missing["subject"], missing["result"]) == ("job nosuch", "NotFound")
    assert missing["reason"] == "There is no job nosuch."
    assert (wrong["subject"], wrong["result"]) == ("job x", "WrongUse")
    assert (unread["command"], unread["request_id"]) == ("task.schedule", "r" * 64)


def test_what_breaks_is_one_line_too(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_(*_: object) -> None:
        raise RuntimeError("the password is sesame")

    monkeypatch.setattr("drumline.store.task.tasks.add_one", break_)
    with pytest.raises(DrumlineError, match="an internal error"):
        door("task.schedule", type=SPEC.type)
    (line,) = door.trail()
    assert (line["result"], line["reason"]) == ("Failed", "an internal error; see the log")


def test_questions_and_callbacks_leave_no_line(door: Door) -> None:
    door("task.list")
    arguments = {"task_id": 1, "token": "x", "callback": {"status": "success"}}
    with suppress(DrumlineError):
        door("callback.receive", **arguments)
    assert door.trail() == []


def test_a_request_that_is_repeated_is_one_line(door: Door) -> None:
    for _ in range(2):
        door("task.schedule", "r1", type=SPEC.type)
    assert len(door.trail()) == 1
    with commit_of_unknown_fate(door.database):
        door("task.schedule", "r2", type=SPEC.type)
    assert [line["request_id"] for line in door.trail()] == ["r2", "r1"]
    assert door.count(task) == 2


def test_a_change_and_its_line_are_one_commit(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_(*_: object) -> None:
        raise Conflict(reason="no room for another line")

    monkeypatch.setattr(audit, "write", break_)
    with pytest.raises(Conflict):
        door("task.schedule", type=SPEC.type)
    assert door.count(task) == 0


def test_a_refusal_stands_when_the_trail_cannot_be_written(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise passing_fault(door.database)

    with monkeypatch.context() as patch:
        patch.setattr(door.database, "_write_once", away)
        with pytest.raises(StoreUnavailable):
            door("task.schedule", type=SPEC.type)
    assert door.trail() == []


def test_rest_is_the_other_door(site: Site, door: Door) -> None:
    made = site("POST", "/jobs", SAMPLE, by="operate", Idempotency_Key="r1")
    assert made.status == 201
    assert site("DELETE", "/jobs/sample?version=9", by="operate").status == 409
    assert site("POST", "/jobs/sample/enable", by="read").status == 403
    assert site("POST", "/jobs/sample/enable", by="wrong").status == 401
    forbidden, late, created = door.trail()
    assert (created["actor"], created["door"], created["request_id"]) == (
        "the-operate",
        "rest",
        "r1",
    )
    assert created["subject"] == f"job {made.document['id']}"
    assert "abcdefgh" not in str(created["arguments"]), "the header's secret"
    assert (late["subject"], late["result"]) == ("job sample", "VersionConflict")
    assert (forbidden["actor"], forbidden["result"]) == ("the-read", "RoleTooSmall")
    page = site("GET", "/audit?limit=2&actor=the-operate", by="read")
    assert page.document["audit"] == [late, created]


def test_a_new_token_is_not_in_the_trail(site: Site, door: Door) -> None:
    made = site("POST", "/tokens", {"name": "ci", "role": "read"}).document
    (line,) = door.trail()
    assert line["subject"] == "token ci" and made["token"] not in str(line)


def test_it_can_be_searched(door: Door) -> None:
    first = door("task.schedule", type=SPEC.type)["task_id"]
    other = replace(door.context, actor="x" * 200)
    kind = commands.by_name("task.cancel")
    execute.execute(kind, {"task_id": first}, "r2", other)
    door("queue.pause")
    assert [one["command"] for one in door.trail(subject=f"task {first}")] == [
        "task.cancel",
        "task.schedule",
    ]
    assert [one["request_id"] for one in door.trail(actor="x" * 128)] == ["r2"]
    assert [one["subject"] for one in door.trail(command="queue.pause")] == ["queue"]
    assert door.trail(result="Conflict") == [] and len(door.trail(result="done")) == 3
    assert door.trail(since="2100-01-01T00:00:00Z") == []
    assert len(door.trail(since="2000-01-01T00:00:00Z")) == 3
    page = door("audit.list", limit=2)
    assert page["next"] == page["audit"][-1]["id"]
    assert len(door.trail(before=page["next"])) == 1
    with pytest.raises(WrongUse, match="since"):
        door.trail(since="yesterday")


def test_what_is_old_leaves_the_trail(door: Door, database: Database) -> None:
    door("queue.pause")
    now = database.now()
    assert database.write(lambda tx: audit.prune(tx, now - HOUR)) == 0
    assert database.write(lambda tx: audit.prune(tx, now + HOUR)) == 1
    assert door.count(audit_table) == 0
