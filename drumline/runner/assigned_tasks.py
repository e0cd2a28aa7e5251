"""The tasks that an executor was told about and has not started yet."""

from __future__ import annotations

from drumline.domain.task import DueTask
from drumline.runner.frames import ForgetTasks, RunTasks, Ticket


class AssignedTasks:
    """A task waits here from its RunTasks frame until its ticket is read or taken back."""

    def __init__(self) -> None:
        self._tasks: dict[int, DueTask] = {}
        self._callbacks: dict[int, tuple[str, str]] = {}

    def add(self, frame: RunTasks) -> None:
        self._tasks.update((task.id, task) for task in frame.tasks)
        self._callbacks.update(frame.callbacks)

    def forget(self, frame: ForgetTasks) -> None:
        for task_id in frame.task_ids:
            self._tasks.pop(task_id, None)
            self._callbacks.pop(task_id, None)

    def has(self, ticket: Ticket) -> bool:
        """Whether the frame that describes the ticket's task has been read."""
        return ticket.admits(self._tasks.get(ticket.task_id))

    def take(self, ticket: Ticket) -> DueTask:
        return self._tasks.pop(ticket.task_id)

    def take_callback(self, task_id: int) -> tuple[str, str] | None:
        """Where the task's target calls back, and with which token."""
        return self._callbacks.pop(task_id, None)
