"""How many tasks a bundle may hold: as many as fit into a few milliseconds of work.

A handler without measured runs gets bundles of one task. Its bundles grow as runs are measured, and
shrink to one task as soon as its mean exceeds the budget, so that no task waits behind a slow one.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from drumline.domain.dispatch.ready_queue import ReadyQueue
from drumline.domain.task import DueTask

GROWTH = 8
"""A bundle holds at most this many tasks for each measured run, plus one."""
WEIGHT = 0.2
"""Of the latest mean in the running mean, when it is lower."""


class RuntimeEstimates:
    """The running mean of each handler's run time, and the bundle sizes that follow from it."""

    def __init__(self, budget: float, max_tasks: int) -> None:
        self.budget = budget
        self.max_tasks = max_tasks
        self._means: dict[str, tuple[float, int]] = {}

    def record_runs(self, key: str, runs: int, seconds: float) -> None:
        """Add measured runs. The mean follows a slower run at once and faster runs gradually."""
        if runs <= 0 or not 0 <= seconds < math.inf:
            return  # not a measurement: the numbers come from another process
        latest = seconds / runs
        mean, seen = self._means.get(key, (latest, 0))
        mean = latest if latest > mean else mean + (latest - mean) * WEIGHT
        self._means[key] = (mean, min(seen + runs, 1_000_000))

    def expected_seconds(self, key: str) -> float:
        """The expected time of one run; infinite for a handler without measured runs."""
        return self._means[key][0] if key in self._means else math.inf

    def bundle_size(self, key: str) -> int:
        """How many tasks of this handler one bundle may hold."""
        if key not in self._means:
            return 1
        mean, seen = self._means[key]
        fits_all = mean * self.max_tasks <= self.budget
        fitting = self.max_tasks if fits_all else int(self.budget / mean)
        return max(1, min(fitting, 1 + GROWTH * seen))

    def is_quick(self, key: str) -> bool:
        """Whether another bundle may be queued behind one of this handler."""
        return self.expected_seconds(key) < self.budget


def cut_bundle(
    queue: ReadyQueue,
    keys: Collection[str],
    estimates: RuntimeEstimates,
    sweep_keys: Collection[str],
    limit: int | None,
) -> list[DueTask]:
    """Take a bundle of these handlers' tasks out of the queue, the most urgent first.

    With a limit, that many tasks; without one, as much work as the budget allows.
    """
    tasks: list[DueTask] = []
    work = 0.0
    while (task := queue.most_urgent(keys)) is not None:
        seconds = estimates.expected_seconds(task.key)
        if limit is None:
            size = estimates.bundle_size(task.key)
            if tasks and (len(tasks) >= size or work + seconds > estimates.budget):
                break
            if task.key in sweep_keys:
                # A partition occupies the worker: it is a bundle of its own.
                if not tasks:
                    tasks.append(queue.pop(task.key))
                break
        elif len(tasks) >= limit:
            break
        tasks.append(queue.pop(task.key))
        work += seconds
    return tasks
