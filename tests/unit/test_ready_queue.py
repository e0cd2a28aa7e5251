"""The ready queue compared with a model: a list that is sorted for each query."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drumline.domain.dispatch.ready_queue import ReadyQueue
from drumline.domain.states import TaskState
from drumline.domain.task import DueTask

KEYS = ("target/a", "target/b", "other/a")
CAPACITY = 6


def due_task(id: int, key: str = KEYS[0], priority: int = 5, due_at: int = 0) -> DueTask:
    target_type, _, type = key.partition("/")
    values: dict[str, Any] = {
        "id": id, "version": 0, "status": TaskState.PENDING, "type": type,
        "target_type": target_type, "priority": priority, "due_at": due_at, "timeout_ms": 1000,
        "attempt": 0, "retry_time": 0, "failures": 0, "deaths": 0, "body": b"",
    }  # fmt: skip
    everything: dict[str, Any] = dict.fromkeys(DueTask.__struct_fields__)
    return DueTask(**everything | values)


def urgency(task: DueTask) -> tuple[int, int, int]:
    return -task.priority, task.due_at, task.id


class QueueAndModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = ReadyQueue(CAPACITY)
        self.model: list[DueTask] = []

    def sorted_tasks(self, *keys: str) -> list[DueTask]:
        return sorted((task for task in self.model if task.key in keys), key=urgency)

    @rule(
        id=st.integers(1, 12),
        key=st.sampled_from(KEYS),
        priority=st.integers(0, 9),
        due_at=st.integers(0, 3),
    )
    def add(self, id: int, key: str, priority: int, due_at: int) -> None:
        task = due_task(id, key, priority, due_at)
        known = any(other.id == id for other in self.model)
        full = len(self.model) == CAPACITY
        assert self.queue.add(task) is (known or not full)
        if not known and not full:
            self.model.append(task)

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 10))
    def pop(self, number: int) -> None:
        keys = sorted({task.key for task in self.model})
        key = keys[number % len(keys)]
        taken = self.queue.pop(key)
        assert taken == self.sorted_tasks(key)[0]
        self.model.remove(taken)

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def remove_handlers(self, keys: set[str]) -> None:
        removed = self.queue.remove_handlers(keys)
        assert sorted(removed) == sorted(task.id for task in self.sorted_tasks(*keys))
        self.model = [task for task in self.model if task.key not in keys]

    @rule(keys=st.lists(st.sampled_from((*KEYS, "unknown/handler"))))
    def most_urgent(self, keys: list[str]) -> None:
        wanted = self.sorted_tasks(*keys)
        assert self.queue.most_urgent(keys) == (wanted[0] if wanted else None)

    @invariant()
    def queue_equals_model(self) -> None:
        assert len(self.queue) == len(self.model) <= CAPACITY
        assert self.queue.room == CAPACITY - len(self.model)
        ids = {task.id for task in self.model}
        assert all((id in self.queue) is (id in ids) for id in range(13))
        counts = {key: len(self.sorted_tasks(key)) for key in KEYS}
        assert self.queue.count_by_handler() == {key: n for key, n in counts.items() if n}


TestQueueAndModel = QueueAndModel.TestCase
TestQueueAndModel.settings = settings(max_examples=50, stateful_step_count=30)


def test_a_queued_task_is_not_queued_twice() -> None:
    queue = ReadyQueue(10)
    assert queue.add(due_task(1))
    assert queue.add(due_task(1, priority=9))
    assert len(queue) == 1
    assert queue.pop(KEYS[0]).priority == 5


def test_a_full_queue_refuses_a_task_and_keeps_the_others() -> None:
    queue = ReadyQueue(2)
    assert queue.add(due_task(1)) and queue.add(due_task(2))
    assert not queue.add(due_task(3, priority=9))
    assert [queue.pop(KEYS[0]).id, queue.pop(KEYS[0]).id] == [1, 2]
    assert queue.add(due_task(3))
