"""The audit trail: one entry for every change, made or refused, through either front end."""

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
from tests.store.job_samples import HTTP, SAMPLE
from tests.store.stub_gateway import STRICT, StubGateway
from tests.store.world import SPEC, World, commit_of_unknown_fate, passing_fault
from tests.web_site import Site

HOUR = 3_600_000_000


class AuditedGateway(StubGateway):
    """Runs commands as the control socket does."""

    def __call__(
        self, command_name: str, request_id: str | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        kind = commands.by_name(command_name)
        return execute.execute(kind, arguments, request_id or new_request_id(), self.context)

    def trail(self, **filters: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self("audit.list", **filters)["audit"]
        return found


@pytest.fixture
def gateway(world: World) -> AuditedGateway:
    world.announce(SPEC, STRICT, HTTP)
    return AuditedGateway(world.database)


@pytest.fixture
def site(gateway: AuditedGateway) -> Iterator[Site]:
    with Site(gateway.context) as site:
        yield site


def test_a_change_is_one_entry(gateway: AuditedGateway) -> None:
    made = gateway("task.schedule", "r1", type=SPEC.type, param={"password": "sesame", "n": 1})
    (line,) = gateway.trail()
    assert line.pop("at") and line.pop("id")
    assert line.pop("arguments") == {
        "type": SPEC.type,
        "param": {"password": "***", "n": 1},
    }
    assert line == {
        "actor": "tester",
        "front_end": "control",
        "command": "task.schedule",
        "subject": f"task {made['task_id']}",
        "result": "done",
        "reason": None,
        "request_id": "r1",
    }


def test_a_refusal_is_one_entry(gateway: AuditedGateway) -> None:
    with pytest.raises(NotFound):
        gateway("job.enable", job="nosuch")
    with pytest.raises(WrongUse):
        gateway("job.create", name="x", cron_expr=7)
    with pytest.raises(WrongUse):
        gateway("task.schedule", "r" * 65, type=SPEC.type)
    unread, wrong, missing = gateway.trail()
    assert (missing["subject"], missing["result"]) == ("job nosuch", "NotFound")
    assert missing["reason"] == "There is no job nosuch."
    assert (wrong["subject"], wrong["result"]) == ("job x", "WrongUse")
    assert (unread["command"], unread["request_id"]) == ("task.schedule", "r" * 64)


def test_an_internal_error_is_one_entry(
    gateway: AuditedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_(*_: object) -> None:
        raise RuntimeError("the password is sesame")

    monkeypatch.setattr("drumline.store.task.tasks.add_one", break_)
    with pytest.raises(DrumlineError, match="an internal error"):
        gateway("task.schedule", type=SPEC.type)
    (line,) = gateway.trail()
    assert (line["result"], line["reason"]) == ("Failed", "an internal error; see the log")


def test_queries_and_callbacks_have_no_entry(gateway: AuditedGateway) -> None:
    gateway("task.list")
    arguments = {"task_id": 1, "token": "x", "callback": {"status": "success"}}
    with suppress(DrumlineError):
        gateway("callback.receive", **arguments)
    assert gateway.trail() == []


def test_a_repeated_request_is_one_entry(gateway: AuditedGateway) -> None:
    for _ in range(2):
        gateway("task.schedule", "r1", type=SPEC.type)
    assert len(gateway.trail()) == 1
    with commit_of_unknown_fate(gateway.database):
        gateway("task.schedule", "r2", type=SPEC.type)
    assert [line["request_id"] for line in gateway.trail()] == ["r2", "r1"]
    assert gateway.count(task) == 2


def test_a_change_and_its_entry_are_one_transaction(
    gateway: AuditedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_(*_: object) -> None:
        raise Conflict(reason="no room for another line")

    monkeypatch.setattr(audit, "write", break_)
    with pytest.raises(Conflict):
        gateway("task.schedule", type=SPEC.type)
    assert gateway.count(task) == 0


def test_a_refusal_is_raised_even_if_its_entry_cannot_be_written(
    gateway: AuditedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise passing_fault(gateway.database)

    with monkeypatch.context() as patch:
        patch.setattr(gateway.database, "_write_once", away)
        with pytest.raises(StoreUnavailable):
            gateway("task.schedule", type=SPEC.type)
    assert gateway.trail() == []


def test_changes_over_rest_are_audited(site: Site, gateway: AuditedGateway) -> None:
    made = site("POST", "/jobs", SAMPLE, by="operate", Idempotency_Key="r1")
    assert made.status == 201
    assert site("DELETE", "/jobs/sample?version=9", by="operate").status == 409
    assert site("POST", "/jobs/sample/enable", by="read").status == 403
    assert site("POST", "/jobs/sample/enable", by="wrong").status == 401
    forbidden, late, created = gateway.trail()
    assert (created["actor"], created["front_end"], created["request_id"]) == (
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


def test_a_new_token_is_not_in_the_audit_trail(site: Site, gateway: AuditedGateway) -> None:
    made = site("POST", "/tokens", {"name": "ci", "role": "read"}).document
    (line,) = gateway.trail()
    assert line["subject"] == "token ci" and made["token"] not in str(line)


def test_the_audit_trail_can_be_filtered(gateway: AuditedGateway) -> None:
    first = gateway("task.schedule", type=SPEC.type)["task_id"]
    other = replace(gateway.context, actor="x" * 200)
    kind = commands.by_name("task.cancel")
    execute.execute(kind, {"task_id": first}, "r2", other)
    gateway("queue.pause")
    assert [one["command"] for one in gateway.trail(subject=f"task {first}")] == [
        "task.cancel",
        "task.schedule",
    ]
    assert [one["request_id"] for one in gateway.trail(actor="x" * 128)] == ["r2"]
    assert [one["subject"] for one in gateway.trail(command="queue.pause")] == ["queue"]
    assert gateway.trail(result="Conflict") == [] and len(gateway.trail(result="done")) == 3
    assert gateway.trail(since="2100-01-01T00:00:00Z") == []
    assert len(gateway.trail(since="2000-01-01T00:00:00Z")) == 3
    page = gateway("audit.list", limit=2)
    assert page["next"] == page["audit"][-1]["id"]
    assert len(gateway.trail(before=page["next"])) == 1
    with pytest.raises(WrongUse, match="since"):
        gateway.trail(since="yesterday")


def test_old_entries_are_pruned(gateway: AuditedGateway, database: Database) -> None:
    gateway("queue.pause")
    now = database.now()
    assert database.write(lambda tx: audit.prune(tx, now - HOUR)) == 0
    assert database.write(lambda tx: audit.prune(tx, now + HOUR)) == 1
    assert gateway.count(audit_table) == 0
