"""The reasons why a task waits."""

from typing import Any

from drumline.command_layer import why_waiting
from drumline.domain.dispatch.status import WorkerStatus
from tests.store.stub_gateway import StubGateway, loading, submitted
from tests.store.world import SPEC, World


def whys(gateway: StubGateway, task_id: int) -> str:
    return str(gateway("task.show", task_id=task_id)["why"])


def test_why_a_task_waits(gateway: StubGateway, world: World) -> None:
    batch_id = loading(gateway)
    assert "still being loaded" in whys(gateway, world.members(batch_id)[0])
    later = gateway("task.schedule", type=SPEC.type, delay=60)["task_id"]
    assert "due in" in whys(gateway, later)
    first = gateway("task.schedule", type=SPEC.type)["task_id"]
    second = gateway("task.schedule", type=SPEC.type)["task_id"]
    assert whys(gateway, first).startswith("it is next; 1 of 1 workers are free")
    assert whys(gateway, second).startswith("1 are ahead of it")
    gateway("task.reschedule", task_id=second, priority=6)
    assert whys(gateway, first).startswith("1 are ahead of it")
    gateway.change_queue(free_workers=0)
    assert whys(gateway, second) == "it is next; all 1 workers are busy"
    gateway.change_queue(length=10)
    assert whys(gateway, second).startswith("the queue is full")
    gateway.workers = (WorkerStatus(name="worker-7", tasks=(second,)),)
    assert whys(gateway, second).startswith("worker-7 has it")
    gateway.change_queue(pool_size=0)
    assert whys(gateway, second) == "there is no worker"
    gateway.reachable = False
    assert "dispatcher does not answer" in whys(gateway, second)
    gateway("queue.pause", type=SPEC.type)
    assert f"queue resume {SPEC.type}`" in whys(gateway, second)
    gateway("queue.pause")
    assert "everything is paused" in whys(gateway, second)


def test_why_a_task_without_a_handler_waits(gateway: StubGateway, world: World) -> None:
    task_id = world.one_shot(type="gone", target_type="target")
    assert "no worker has ever announced" in whys(gateway, task_id)


def test_the_count_of_tasks_ahead_is_limited(gateway: StubGateway, monkeypatch: Any) -> None:
    monkeypatch.setattr(why_waiting, "COUNT_LIMIT", 3)
    submitted(gateway, count=5, priority=8)
    task_id = gateway("task.schedule", type=SPEC.type)["task_id"]
    assert whys(gateway, task_id).startswith("more than 3 are ahead of it")
