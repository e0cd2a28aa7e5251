"""The commands of single tasks."""

from typing import Any

import pytest

from drumline.domain.release import RunEnd
from drumline.errors import Conflict, NotFound, WrongUse
from drumline.store.tables import task
from tests.store.stub_gateway import STRICT, UNDOES, StubGateway, outcome, submitted
from tests.store.world import SPEC, World, at_once, over


def test_an_instance_id_is_unique_while_its_task_is_unfinished(
    gateway: StubGateway, world: World
) -> None:
    first = gateway("task.schedule", type=SPEC.type, instance_id="a")["task_id"]
    with pytest.raises(Conflict, match=f"task {first}"):
        gateway("task.schedule", type=SPEC.type, instance_id="a")
    gateway("task.schedule", type=SPEC.type, instance_id="b")
    gateway("task.schedule", type=UNDOES.type, instance_id="a")
    world.run(world.keeper(), end=RunEnd.ERROR)
    second = gateway("task.schedule", type=SPEC.type, instance_id="a")["task_id"]
    with pytest.raises(Conflict, match=f"task {second}"):
        gateway("task.retry", task_id=first)
    world.check_laws()


def test_one_of_concurrent_tasks_with_an_instance_id_is_scheduled(gateway: StubGateway) -> None:
    results = at_once(
        *[lambda: outcome(lambda: gateway("task.schedule", type=SPEC.type, instance_id="a"))] * 6
    )
    done = [one["task_id"] for one in results if isinstance(one, dict)]
    refused = [one for one in results if not isinstance(one, dict)]
    assert len(done) == 1
    assert [str(one) for one in refused] == [
        f"type with instance id 'a' is already scheduled as task {done[0]}"
    ] * 5
    assert {type(one) for one in refused} == {Conflict}


@pytest.mark.parametrize(
    ("at", "iso"),
    [
        ("2030-01-31T12:00:00Z", "2030-01-31T12:00:00.000000Z"),
        ("2030-01-31T12:00:00.25+02:00", "2030-01-31T10:00:00.250000Z"),
        ("1893456000", "2030-01-01T00:00:00.000000Z"),
        ("1893456000.5", "2030-01-01T00:00:00.500000Z"),
    ],
)
def test_a_task_is_scheduled_at_the_given_time(gateway: StubGateway, at: str, iso: str) -> None:
    answer = gateway("task.schedule", type=SPEC.type, at=at)
    assert answer["due_at"] == iso
    assert gateway("task.show", task_id=answer["task_id"])["due_at"] == iso


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"at": "2030-01-31T12:00:00"}, "time zone"),
        ({"at": "tomorrow"}, "'tomorrow'"),
        ({"at": "1e300"}, "1e300"),
        ({"at": "nan"}, "nan"),
        ({"at": "-1"}, "-1"),
        ({"at": "1893456000000"}, "9999"),
        ({"delay": -1}, "delay"),
        ({"at": "0", "delay": 1}, "not both"),
        ({"instance_id": ""}, "instance_id"),
        ({"instance_id": "x" * 127}, "instance_id"),
        ({"type": STRICT.type, "param": {"n": "one"}}, "param.n"),
    ],
)
def test_a_wrong_task_is_refused(
    gateway: StubGateway, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(WrongUse) as raised:
        gateway("task.schedule", **{"type": SPEC.type} | arguments)
    assert words in str(raised.value)
    assert gateway.count(task) == 0


def test_a_waiting_task_is_rescheduled(gateway: StubGateway, world: World) -> None:
    first = gateway("task.schedule", type=SPEC.type)["task_id"]
    second = gateway("task.schedule", type=SPEC.type)["task_id"]
    held = world.dues([first])
    gateway("task.reschedule", task_id=second, priority=9)
    assert [due.id for due in world.dues()] == [second, first]
    answer = gateway("task.reschedule", task_id=first, at="2030-01-01T00:00:00Z")
    assert answer == {
        "task_id": first,
        "due_at": "2030-01-01T00:00:00.000000Z",
        "priority": 5,
    }
    # The copy that the dispatcher holds is stale: no keeper can acquire the task with it.
    from drumline.store.task import runs

    assert runs.acquire(gateway.database, world.keeper(), held) == []
    world.check_laws()


def test_a_running_or_finished_task_is_not_rescheduled(gateway: StubGateway, world: World) -> None:
    task_id = gateway("task.schedule", type=SPEC.type)["task_id"]
    keeper = world.keeper()
    (due,) = world.acquire(keeper)
    with pytest.raises(Conflict, match="is running"):
        gateway("task.reschedule", task_id=task_id, delay=5)
    world.release(keeper, [over(due)])
    with pytest.raises(Conflict, match="is success"):
        gateway("task.reschedule", task_id=task_id, delay=5)
    with pytest.raises(WrongUse, match="nothing to change"):
        gateway("task.reschedule", task_id=task_id)


def test_the_three_outcomes_of_a_cancel(gateway: StubGateway, world: World) -> None:
    waiting = gateway("task.schedule", type=SPEC.type, instance_id="a")["task_id"]
    assert gateway("task.cancel", task_id=waiting)["state"] == "cancel"
    with pytest.raises(Conflict, match="already cancel"):
        gateway("task.cancel", task_id=waiting)
    gateway("task.schedule", type=SPEC.type, instance_id="a")
    keeper = world.keeper()
    (due,) = world.acquire(keeper)
    assert gateway("task.cancel", task_id=due.id)["state"] == "stopping"
    assert gateway.requests == []
    assert gateway("task.show", task_id=due.id)["stop_asked"] == "cancel"
    assert gateway("task.cancel", task_id=due.id, force=True)["state"] == "killing"
    assert gateway.requests == [("kill", "", due.id)]
    world.release(keeper, [over(due)])
    assert world.task_status(due.id) == "cancel"
    world.check_laws()


def test_a_failed_task_shows_its_attempts_and_runs_again(
    gateway: StubGateway, world: World
) -> None:
    task_id = gateway("task.schedule", type=SPEC.type)["task_id"]
    world.run(world.keeper(), end=RunEnd.ERROR)
    found = gateway("task.show", task_id=task_id)
    assert (found["status"], found["cause"], found["attempt"]) == ("fail", "error", 1)
    assert [one["info"] for one in found["attempts"]] == ["it was: error"]
    assert gateway("task.retry", task_id=task_id)["status"] == "retry_pending"
    world.run(world.keeper())
    assert gateway("task.show", task_id=task_id)["status"] == "success"
    with pytest.raises(Conflict, match="only failed"):
        gateway("task.retry", task_id=task_id)


def test_a_running_task_shows_its_worker(gateway: StubGateway, world: World) -> None:
    task_id = gateway("task.schedule", type=SPEC.type)["task_id"]
    keeper = world.keeper(name="worker-7")
    (due,) = world.acquire(keeper)
    found = gateway("task.show", task_id=task_id)
    assert (found["owner"], found["keeper"], found["fence"]) == ("worker-7", keeper, due.fence)
    assert found["last_heartbeat"] is not None
    assert found["why"] is None


def test_lists_are_paged_newest_first(gateway: StubGateway, world: World) -> None:
    batch_id = submitted(gateway, count=5)
    other = gateway("task.schedule", type=UNDOES.type)["task_id"]
    world.run(world.keeper(), world.members(batch_id)[:2], end=RunEnd.ERROR)
    seen: list[int] = []
    before = None
    while True:
        page = gateway("task.list", limit=2, **({"before": before} if before else {}))
        seen += [one["id"] for one in page["tasks"]]
        before = page["next"]
        if before is None:
            break
    assert seen == [other, *world.members(batch_id)[::-1]]
    failed = gateway("task.list", status=["fail"], batch_id=batch_id)["tasks"]
    assert [one["id"] for one in failed] == world.members(batch_id)[1::-1]
    assert [one["id"] for one in gateway("task.list", type=UNDOES.type)["tasks"]] == [other]
    newest = submitted(gateway)
    page = gateway("batch.list", limit=1)
    assert [one["id"] for one in page["batches"]] == [newest]
    assert [one["id"] for one in gateway("batch.list", before=page["next"])["batches"]] == [
        batch_id
    ]


def test_rows_of_another_region_are_not_found(gateway: StubGateway, world: World) -> None:
    batch_id = submitted(gateway)
    world.set_batch(batch_id, region="elsewhere")
    (one, *_) = world.members(batch_id)
    world.set_task(one, region="elsewhere")
    for command in ("batch.show", "batch.cancel", "batch.retry", "batch.rollback"):
        with pytest.raises(NotFound, match=f"no batch {batch_id}"):
            gateway(command, batch_id=batch_id)
    for command in ("task.show", "task.cancel", "task.retry"):
        with pytest.raises(NotFound, match=f"no task {one}"):
            gateway(command, task_id=one)
