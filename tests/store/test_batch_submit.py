"""Batches come in: in one piece or in several, whole or not at all."""

from typing import Any

import pytest

from drumline.errors import Conflict, DrumlineError, NotFound, UnknownHandler, WrongUse
from drumline.store.batch import operations
from drumline.store.tables import batch, request, task
from tests.store.desk import STRICT, Desk, loading, submitted
from tests.store.world import REGION, SPEC, Crash, World, crash_after

# --- submitting ----------------------------------------------------------------------------------


def test_a_submitted_batch_has_all_it_was_given_and_rings_the_scanner(
    desk: Desk, world: World
) -> None:
    about = {"env": "prod", "az": "a", "cmdb_service": "s", "creator": "me", "extra_info": {"x": 1}}
    targets = [{"target_id": "t1", "param": 1}, {"target_name": "two", "before_update": {"o": 1}}]
    answer = desk(
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
    assert desk.rings == 1
    found = desk("batch.show", batch_id=answer["batch_id"])
    assert found["status"] == "pending"
    assert found["counts"] == {"pending": 2}
    assert about.items() <= found.items()
    one, two = world.members(answer["batch_id"])
    first = desk("task.show", task_id=one)
    assert (first["param"], first["target_id"], first["priority"]) == (1, "t1", 7)
    assert (first["timeout"], first["env"]) == (1.5, "prod")
    second = desk("task.show", task_id=two)
    assert second["param"] == {"common": True}
    assert second["target_param"] == {"before_update": {"o": 1}, "after_update": None}
    world.check_laws()


def test_the_actor_is_the_creator_if_nobody_else_is_named(desk: Desk) -> None:
    assert desk("batch.show", batch_id=submitted(desk))["creator"] == "tester"


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
def test_a_wrong_submission_names_what_is_wrong_and_leaves_nothing(
    desk: Desk, arguments: dict[str, Any], error: type[DrumlineError], words: str
) -> None:
    with pytest.raises(error) as raised:
        submitted(desk, **arguments)
    assert words in str(raised.value)
    assert [desk.count(table) for table in (batch, task, request)] == [0, 0, 0]
    assert desk.rings == 0


# --- in pieces -----------------------------------------------------------------------------------


def test_nothing_of_a_batch_can_start_before_all_of_it_is_there(desk: Desk, world: World) -> None:
    batch_id = loading(desk)
    assert world.dues() == []
    assert desk("batch.show", batch_id=batch_id)["status"] == "loading"
    desk("batch.load", batch_id=batch_id, targets=[{"target_id": "a"}])
    assert desk.rings == 0
    assert desk("batch.start", batch_id=batch_id)["tasks"] == 4
    assert desk.rings == 1
    assert len(world.dues()) == 4
    world.check_laws()


def test_a_piece_sent_twice_is_loaded_once(desk: Desk, world: World) -> None:
    batch_id = loading(desk)
    for _ in range(2):
        desk("batch.load", "piece 2", batch_id=batch_id, count=2)
    assert desk("batch.start", batch_id=batch_id)["tasks"] == 5
    world.check_laws()


def test_a_batch_that_has_started_takes_no_more(desk: Desk) -> None:
    batch_id = loading(desk)
    desk("batch.start", batch_id=batch_id)
    for command, arguments in (
        ("batch.start", {}),
        ("batch.load", {"count": 1}),
        ("batch.discard", {}),
    ):
        with pytest.raises(Conflict, match="no longer being loaded"):
            desk(command, batch_id=batch_id, **arguments)
    assert desk.count(task) == 3


def test_an_empty_batch_cannot_start(desk: Desk) -> None:
    batch_id = desk("batch.open", batch_name="june", type=SPEC.type)["batch_id"]
    with pytest.raises(WrongUse, match="at least one"):
        desk("batch.start", batch_id=batch_id)


def test_a_discarded_load_leaves_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "CHUNK", 2)
    kept = submitted(desk, count=1)
    batch_id = loading(desk, count=5)
    for _ in range(2):
        assert desk("batch.discard", "r1", batch_id=batch_id)["discarded"] == 5
    with pytest.raises(NotFound):
        desk("batch.show", batch_id=batch_id)
    assert desk.count(task) == 1
    assert desk("batch.show", batch_id=kept)["total"] == 1


def test_a_discard_that_died_half_way_is_finished_by_whoever_finds_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "CHUNK", 2)
    batch_id = loading(desk, count=5)
    with crash_after(desk.database, commits=2), pytest.raises(Crash):
        desk("batch.discard", batch_id=batch_id)
    assert desk.count(task) == 3
    with pytest.raises(Conflict, match="no longer being loaded"):
        desk("batch.load", batch_id=batch_id, count=1)
    operations.run_operation(desk.database, batch_id)
    assert (desk.count(task), desk.count(batch)) == (0, 0)
