"""Why a task waits, in words that say what to do."""

from typing import Any

from drumline.command_layer import why_waiting
from drumline.domain.dispatch.status import WorkerStatus
from tests.store.desk import Desk, loading, submitted
from tests.store.world import SPEC, World


def whys(desk: Desk, task_id: int) -> str:
    return str(desk("task.show", task_id=task_id)["why"])


def test_why_a_task_waits(desk: Desk, world: World) -> None:
    batch_id = loading(desk)
    assert "still being loaded" in whys(desk, world.members(batch_id)[0])
    later = desk("task.schedule", type=SPEC.type, delay=60)["task_id"]
    assert "due in" in whys(desk, later)
    first = desk("task.schedule", type=SPEC.type)["task_id"]
    second = desk("task.schedule", type=SPEC.type)["task_id"]
    assert whys(desk, first).startswith("it is next; 1 of 1 workers are free")
    assert whys(desk, second).startswith("1 are ahead of it")
    desk("task.reschedule", task_id=second, priority=6)
    assert whys(desk, first).startswith("1 are ahead of it")
    desk.change_queue(free_workers=0)
    assert whys(desk, second) == "it is next; all 1 workers are busy"
    desk.change_queue(length=10)
    assert whys(desk, second).startswith("the queue is full")
    desk.workers = (WorkerStatus(name="worker-7", tasks=(second,)),)
    assert whys(desk, second).startswith("worker-7 has it")
    desk.change_queue(pool_size=0)
    assert whys(desk, second) == "there is no worker"
    desk.reachable = False
    assert "dispatcher does not answer" in whys(desk, second)
    desk("queue.pause", type=SPEC.type)
    assert f"queue resume {SPEC.type}`" in whys(desk, second)
    desk("queue.pause")
    assert "everything is paused" in whys(desk, second)


def test_why_nobody_can_run_it(desk: Desk, world: World) -> None:
    task_id = world.one_shot(type="gone", target_type="target")
    assert "no worker has ever announced" in whys(desk, task_id)


def test_a_crowd_ahead_is_not_counted_to_its_end(desk: Desk, monkeypatch: Any) -> None:
    monkeypatch.setattr(why_waiting, "COUNT_LIMIT", 3)
    submitted(desk, count=5, priority=8)
    task_id = desk("task.schedule", type=SPEC.type)["task_id"]
    assert whys(desk, task_id).startswith("more than 3 are ahead of it")
