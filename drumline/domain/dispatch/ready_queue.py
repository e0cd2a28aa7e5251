"""The dispatcher's queue of due tasks: bounded, without duplicates, the most urgent first."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable

from drumline.domain.task import DueTask


class ReadyQueue:
    """One heap for each handler, so that a worker gets only tasks that it can run."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._heaps: dict[str, list[tuple[int, int, int, DueTask]]] = {}
        self._queued: set[int] = set()

    def __len__(self) -> int:
        return len(self._queued)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._queued

    @property
    def room(self) -> int:
        return self.capacity - len(self._queued)

    def add(self, task: DueTask) -> bool:
        """Queue a task, unless it is queued already. False: the queue is full."""
        if task.id in self._queued:
            return True
        if len(self._queued) >= self.capacity:
            return False
        self._queued.add(task.id)
        entry = (-task.priority, task.due_at, task.id, task)
        heapq.heappush(self._heaps.setdefault(task.key, []), entry)
        return True

    def most_urgent(self, keys: Iterable[str]) -> DueTask | None:
        """The most urgent queued task of these handlers."""
        heaps = [heap for key in keys if (heap := self._heaps.get(key))]
        return min(heaps, key=lambda heap: heap[0][:3])[0][3] if heaps else None

    def pop(self, key: str) -> DueTask:
        """Remove and return the most urgent task of a handler."""
        heap = self._heaps[key]
        task = heapq.heappop(heap)[3]
        self._queued.discard(task.id)
        if not heap:
            del self._heaps[key]
        return task

    def count_by_handler(self) -> dict[str, int]:
        """The number of queued tasks of each handler."""
        return {key: len(heap) for key, heap in self._heaps.items()}

    def remove_handlers(self, keys: Collection[str]) -> list[int]:
        """Remove the tasks of paused handlers; they stay due in the database. Returns their ids."""
        removed = []
        for key in [key for key in self._heaps if key in keys]:
            removed += [entry[2] for entry in self._heaps.pop(key)]
        self._queued.difference_update(removed)
        return removed
