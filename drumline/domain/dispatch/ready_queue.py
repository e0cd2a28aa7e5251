"""The dispatcher's ready-queue: bounded, each task once, the most urgent first."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable

from drumline.domain.task import DueTask


class ReadyQueue:
    """One heap a handler, so that a worker is asked only for what it can run."""

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

    def offer(self, due: DueTask) -> bool:
        """Take a task in. False: the queue is full. A task that is here already is not doubled."""
        if due.id in self._queued:
            return True
        if len(self._queued) >= self.capacity:
            return False
        self._queued.add(due.id)
        entry = (-due.priority, due.due_at, due.id, due)
        heapq.heappush(self._heaps.setdefault(due.key, []), entry)
        return True

    def head(self, keys: Iterable[str]) -> DueTask | None:
        """The most urgent task of these handlers."""
        heaps = [heap for key in keys if (heap := self._heaps.get(key))]
        return min(heaps, key=lambda heap: heap[0][:3])[0][3] if heaps else None

    def pop(self, key: str) -> DueTask:
        """Take out a handler's most urgent task."""
        heap = self._heaps[key]
        due = heapq.heappop(heap)[3]
        self._queued.discard(due.id)
        if not heap:
            del self._heaps[key]
        return due

    def waiting(self) -> dict[str, int]:
        """How many tasks of each handler are queued."""
        return {key: len(heap) for key, heap in self._heaps.items()}

    def drop(self, keys: Collection[str]) -> list[int]:
        """Throw out handlers that are paused; their tasks are still in the database."""
        dropped = []
        for key in [key for key in self._heaps if key in keys]:
            dropped += [entry[2] for entry in self._heaps.pop(key)]
        self._queued.difference_update(dropped)
        return dropped
