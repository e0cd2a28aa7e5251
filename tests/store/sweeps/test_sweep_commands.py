"""The commands of sweeps, also run concurrently."""

from collections.abc import Callable
from typing import Any

import pytest

from drumline.domain.release import RunEnd
from drumline.domain.sweeps.definition import HOOK_TARGET_TYPE, PARTITION_TARGET_TYPE
from drumline.domain.sweeps.states import Initiator, SweepState
from drumline.errors import Conflict, DrumlineError, NotFound, WrongUse
from drumline.store.sweep import sweeps
from drumline.store.tables import STOP_KILL, task
from drumline.store.tables import sweep as sweep_table
from drumline.store.tx import RaceLost
from tests.store.stub_gateway import StubGateway
from tests.store.sweep_world import SweepWorld, begin
from tests.store.world import SPEC, at_once

# --- create --------------------------------------------------------------------------------------


def test_a_sweep_is_created_and_shown_by_name_and_id(gateway: StubGateway) -> None:
    made = gateway(
        "sweep.create", name="june", type="plain", total=10**10, rate=5.5, parallel=4, errors=7,
        partitions=2, extra={"a": [1]},
    )  # fmt: skip
    assert made == {k: v for k, v in gateway("sweep.show", sweep="june").items() if k != "parts"}
    assert made == {
        k: v for k, v in gateway("sweep.show", sweep=made["id"]).items() if k != "parts"
    }
    wanted = {
        "state": "created", "total": 10**10, "done": 0, "errors": 0, "rate": 5.5, "parallel": 4,
        "error_budget": 7, "partitions": 2, "extra": {"a": [1]}, "creator": "tester",
        "reason": None, "checked": True, "finished": False, "version": 1,
    }  # fmt: skip
    assert wanted.items() <= made.items()
    assert [one["name"] for one in gateway("sweep.list")["sweeps"]] == ["june"]
    assert gateway("sweep.list", state="running")["sweeps"] == []
    with pytest.raises(Conflict, match="already a sweep called 'june'"):
        begin(gateway, "june")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "12"}, "name: '12' would be taken for an id"),
        ({"name": ""}, "name"),
        ({"total": 0}, "total: must be from 1"),
        ({"total": None}, "total: give either a total or items"),
        ({"items": "x"}, "total: give either a total or items"),
        ({"total": None, "items": []}, "total: give either"),
        ({"total": None, "items": ["a\nb"]}, "items: item 1 contains a line break"),
        ({"total": None, "items": ["x" * 2_000_000]}, "items: a list of"),
        ({"rate": 0}, "rate"),
        ({"rate": -1.0}, "rate"),
        ({"parallel": 0}, "parallel"),
        ({"parallel": 257}, "parallel: plain is not async"),
        ({"errors": -1}, "errors"),
        ({"partitions": 101}, "partitions: 101 are more than the 100 items"),
        ({"partitions": 5, "parallel": 4}, "parallel: 4 is less than the 5 partitions"),
        ({"type": "nobody"}, "no runner handles sweeps of type 'nobody'. Known: hooked, loops"),
        ({"type": SPEC.type}, "no runner handles sweeps"),
        ({"extra": "x" * 70_000}, "extra: 70002 bytes"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_error_names_the_wrong_field_of_a_sweep(
    gateway: StubGateway, fields: Any, says: str
) -> None:
    about = {"name": "s", "type": "plain", "total": 100} | fields
    with pytest.raises(WrongUse) as refused:
        gateway("sweep.create", **{k: v for k, v in about.items() if v is not None})
    assert says in str(refused.value)
    assert gateway.count(sweep_table) == 0


def test_an_async_handler_may_run_thousands_of_items_in_parallel(gateway: StubGateway) -> None:
    begin(gateway, type="loops", total=10**6, parallel=5000)


def test_a_sweep_type_cannot_be_scheduled_as_a_task(gateway: StubGateway) -> None:
    with pytest.raises(WrongUse, match="handles sweeps: use `drumline sweep create`"):
        gateway("task.schedule", type="plain")
    shown = {one["type"]: one["target_type"] for one in gateway("handlers.list")["handlers"]}
    assert shown["plain"] == PARTITION_TARGET_TYPE and HOOK_TARGET_TYPE not in shown.values()


# --- operators -----------------------------------------------------------------------------------


def test_stop_and_start_are_refused_in_the_wrong_state(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway, start=False)
    with pytest.raises(Conflict, match="is created: an operator may stop it only from waiting or"):
        gateway("sweep.stop", sweep="s")
    with pytest.raises(Conflict, match="is created: the handler may start it only from waiting"):
        gateway("sweep.ready", sweep="s")
    gateway("sweep.start", sweep="s")
    with pytest.raises(Conflict, match="is running: an operator may start it only from created or"):
        gateway("sweep.start", sweep="s")
    assert gateway("sweep.stop", sweep="s", reason="a pause")["state"] == "stopped", "nothing ran"
    assert gateway("sweep.stop", sweep="s")["reason"] == "stopped by tester: a pause", (
        "it is idempotent"
    )
    gateway("sweep.start", sweep="s")
    held = world.hold("s")
    assert gateway("sweep.stop", sweep="s")["state"] == "stopping"
    with pytest.raises(Conflict, match="is stopping"):
        gateway("sweep.start", sweep="s")
    assert gateway("sweep.stop", sweep="s", force=True)["state"] == "stopping"
    assert world.task(held.task_id).stop == STOP_KILL
    assert ("kill", "", held.task_id) in gateway.requests
    world.end(held, RunEnd.KILLED)
    assert world.show("s").state == "stopped"
    for key in ("nothing", 999):
        with pytest.raises(NotFound, match="no sweep"):
            gateway("sweep.start", sweep=key)


def test_a_transition_from_a_stale_state_is_not_made(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway, start=False)
    stale = world.show("s")
    gateway("sweep.update", sweep="s", rate=3)
    with pytest.raises(RaceLost):
        world.database.write(
            lambda tx: sweeps.move(tx, stale, SweepState.RUNNING, Initiator.OPERATOR)
        )
    assert world.show("s").state == "created"


def test_the_tasks_of_a_sweep_cannot_be_changed_one_by_one(
    gateway: StubGateway, world: SweepWorld
) -> None:
    begin(gateway)
    task_id = world.parts("s")[0].task_id
    for command in ("task.cancel", "task.retry", "task.reschedule"):
        more = {"priority": 3} if command == "task.reschedule" else {}
        with pytest.raises(Conflict, match=r"belongs to sweep \d+: use `drumline sweep`"):
            gateway(command, task_id=task_id, **more)


def test_why_a_partition_waits_at_the_limit(gateway: StubGateway, world: SweepWorld) -> None:
    begin(gateway)
    gateway.change_queue(partitions=3, partition_limit=3)
    why = gateway("task.show", task_id=world.parts("s")[0].task_id)["why"]
    assert why == "this node runs 3 sweep partitions, and its limit is 3"


def test_one_of_concurrent_operators_succeeds(gateway: StubGateway, world: SweepWorld) -> None:
    begin(gateway, start=False, partitions=3)

    def ask(command: str) -> Callable[[], str]:
        def call() -> str:
            try:
                return str(StubGateway(world.database)(command, sweep="s")["state"])
            except DrumlineError as error:
                return str(error)

        return call

    started = at_once(*[ask("sweep.start")] * 4)
    assert started.count("running") == 1
    assert sum("The sweep is running" in word for word in started) == 3
    assert gateway.count(task) == 3
    held = world.hold("s")
    assert set(at_once(*[ask("sweep.stop")] * 4)) == {"stopping"}
    world.end(held, RunEnd.GIVEN_BACK)
    assert world.show("s").state == "stopped"


def test_an_update_is_checked_like_a_new_sweep(gateway: StubGateway, world: SweepWorld) -> None:
    begin(gateway, partitions=2, parallel=4)
    for fields, says in (
        ({"rate": 0}, "rate"),
        ({"parallel": 1}, "parallel: 1 is less than the 2"),
        ({"parallel": 1000}, "parallel"),
        ({"errors": -1}, "errors"),
        ({"unset": ["name"]}, "'name' cannot be unset"),
        ({}, "nothing to change"),
    ):
        with pytest.raises(WrongUse, match=says):
            gateway("sweep.update", sweep="s", **fields)
    with pytest.raises(Conflict, match="only after it has stopped"):
        gateway("sweep.update", sweep="s", extra=1)
    version = gateway("sweep.show", sweep="s")["version"]
    assert gateway("sweep.update", sweep="s", rate=3, version=version)["rate"] == 3.0
    with pytest.raises(Conflict, match="read it again"):
        gateway("sweep.update", sweep="s", rate=4, version=version)
    assert gateway("sweep.update", sweep="s", unset=["rate"])["rate"] is None
    gateway("sweep.stop", sweep="s")
    assert gateway("sweep.update", sweep="s", extra=[1])["extra"] == [1]


def test_a_range_of_a_sweep_is_rerun_as_a_new_sweep(
    gateway: StubGateway, world: SweepWorld
) -> None:
    first = begin(gateway, rate=7.0, errors=3, extra="x", partitions=2)
    made = gateway("sweep.rerun", sweep="s", first=10, end=20)
    assert (made["name"], made["state"], made["rerun_of"]) == ("s-rerun-1", "running", first)
    assert (made["total"], made["first"], made["end"], made["rate"]) == (10, 10, 20, 7.0)
    spans = [(part.first_index, part.end_index) for part in world.parts("s-rerun-1")]
    assert spans == [(10, 15), (15, 20)]
    assert gateway("sweep.rerun", sweep="s", start=False)["name"] == "s-rerun-2"
    for span in ((20, 10), (0, 101), (100, None), (5, 5)):
        with pytest.raises(WrongUse, match="is not a range within 0 to 100"):
            fields = {"first": span[0], "end": span[1]}
            gateway("sweep.rerun", sweep="s", **{k: v for k, v in fields.items() if v is not None})
    with pytest.raises(WrongUse, match="cannot be cut into 11 partitions"):
        gateway("sweep.rerun", sweep="s", first=10, end=20, partitions=11)
