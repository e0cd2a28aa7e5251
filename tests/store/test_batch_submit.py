"""Submitting batches, in one message or in chunks."""

from typing import Any

import pytest

from drumline.errors import Conflict, DrumlineError, NotFound, UnknownHandler, WrongUse
from drumline.store.batch import operations
from drumline.store.tables import batch, request, task
from tests.store.stub_gateway import STRICT, StubGateway, loading, submitted
from tests.store.world import REGION, SPEC, Crash, World, crash_after

# --- submitting ----------------------------------------------------------------------------------


def test_a_submitted_batch_is_stored_and_the_scanner_is_notified(
    gateway: StubGateway, world: World
) -> None:
    about = {"env": "prod", "az": "a", "cmdb_service": "s", "creator": "me", "extra_info": {"x": 1}}
    targets = [{"target_id": "t1", "param": 1}, {"target_name": "two", "before_update": {"o": 1}}]
    answer = gateway(
        "batch.submit",
        batch_name="june",
        type=SPEC.type,
        targets=targets,
        param={"common": True},
        priority=7,
        timeout=1.5,
        region=REGION,
        **about,
    )
    assert answer["tasks"] == 2
    assert gateway.notifications == 1
    found = gateway("batch.show", batch_id=answer["batch_id"])
    assert found["status"] == "pending"
    assert found["counts"] == {"pending": 2}
    assert about.items() <= found.items()
    one, two = world.members(answer["batch_id"])
    first = gateway("task.show", task_id=one)
    assert (first["param"], first["target_id"], first["priority"]) == (1, "t1", 7)
    assert (first["timeout"], first["env"]) == (1.5, "prod")
    second = gateway("task.show", task_id=two)
    assert second["param"] == {"common": True}
    assert second["target_param"] == {"before_update": {"o": 1}, "after_update": None}
    world.check_laws()


def test_the_creator_is_the_actor_by_default(gateway: StubGateway) -> None:
    assert gateway("batch.show", batch_id=submitted(gateway))["creator"] == "tester"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"type": "nobody.can"}, UnknownHandler, "nobody.can"),
        ({"target_type": "elsewhere"}, UnknownHandler, "elsewhere"),
        ({"count": 0}, WrongUse, "at least one target"),
        ({"targets": [{"target_id": "a"}]}, WrongUse, "either targets or a count"),
        ({"region": "mars"}, WrongUse, "'mars'"),
        ({"batch_name": ""}, WrongUse, "batch_name"),
        ({"priority": 10}, WrongUse, "priority"),
        ({"timeout": 0}, WrongUse, "timeout"),
        ({"timeout": float("nan")}, WrongUse, "timeout"),
        ({"timeout": 30 * 86400}, WrongUse, "timeout"),
        ({"param": "x" * (1024 * 1024)}, WrongUse, "bytes"),
        ({"count": 0, "targets": [{"target_id": 5}]}, WrongUse, "targets[0].target_id"),
        ({"count": 0, "targets": [{"name": "x"}]}, WrongUse, "name"),
        ({"surprise": 1}, WrongUse, "surprise"),
        ({"type": STRICT.type}, WrongUse, "param: must be of type object"),
        ({"type": STRICT.type, "param": {"n": 0}}, WrongUse, "param.n: must be >= 1"),
        (
            {"type": STRICT.type, "count": 0, "targets": [{"param": {"n": 1}}, {"param": {}}]},
            WrongUse,
            "target 1: param.n: is missing",
        ),
    ],
)
def test_a_wrong_submission_names_the_field_and_writes_nothing(
    gateway: StubGateway, arguments: dict[str, Any], error: type[DrumlineError], words: str
) -> None:
    with pytest.raises(error) as raised:
        submitted(gateway, **arguments)
    assert words in str(raised.value)
    assert [gateway.count(table) for table in (batch, task, request)] == [0, 0, 0]
    assert gateway.notifications == 0


# --- in pieces -----------------------------------------------------------------------------------


def test_no_task_starts_before_its_batch_is_complete(gateway: StubGateway, world: World) -> None:
    batch_id = loading(gateway)
    assert world.dues() == []
    assert gateway("batch.show", batch_id=batch_id)["status"] == "loading"
    gateway("batch.load", batch_id=batch_id, targets=[{"target_id": "a"}])
    assert gateway.notifications == 0
    assert gateway("batch.start", batch_id=batch_id)["tasks"] == 4
    assert gateway.notifications == 1
    assert len(world.dues()) == 4
    world.check_laws()


def test_a_chunk_sent_twice_is_loaded_once(gateway: StubGateway, world: World) -> None:
    batch_id = loading(gateway)
    for _ in range(2):
        gateway("batch.load", "piece 2", batch_id=batch_id, count=2)
    assert gateway("batch.start", batch_id=batch_id)["tasks"] == 5
    world.check_laws()


def test_a_started_batch_accepts_no_more_tasks(gateway: StubGateway) -> None:
    batch_id = loading(gateway)
    gateway("batch.start", batch_id=batch_id)
    for command, arguments in (
        ("batch.start", {}),
        ("batch.load", {"count": 1}),
        ("batch.discard", {}),
    ):
        with pytest.raises(Conflict, match="no longer being loaded"):
            gateway(command, batch_id=batch_id, **arguments)
    assert gateway.count(task) == 3


def test_an_empty_batch_cannot_start(gateway: StubGateway) -> None:
    batch_id = gateway("batch.open", batch_name="june", type=SPEC.type)["batch_id"]
    with pytest.raises(WrongUse, match="at least one"):
        gateway("batch.start", batch_id=batch_id)


def test_a_discarded_batch_leaves_no_rows(
    gateway: StubGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "CHUNK", 2)
    kept = submitted(gateway, count=1)
    batch_id = loading(gateway, count=5)
    for _ in range(2):
        assert gateway("batch.discard", "r1", batch_id=batch_id)["discarded"] == 5
    with pytest.raises(NotFound):
        gateway("batch.show", batch_id=batch_id)
    assert gateway.count(task) == 1
    assert gateway("batch.show", batch_id=kept)["total"] == 1


def test_an_interrupted_discard_can_be_finished(
    gateway: StubGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "CHUNK", 2)
    batch_id = loading(gateway, count=5)
    with crash_after(gateway.database, commits=2), pytest.raises(Crash):
        gateway("batch.discard", batch_id=batch_id)
    assert gateway.count(task) == 3
    with pytest.raises(Conflict, match="no longer being loaded"):
        gateway("batch.load", batch_id=batch_id, count=1)
    operations.run_operation(gateway.database, batch_id)
    assert (gateway.count(task), gateway.count(batch)) == (0, 0)
