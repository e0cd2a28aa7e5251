"""A target that tasks change, handlers that record their calls on it, and tasks for them."""

from __future__ import annotations

import asyncio
from typing import Any

from drumline.domain.states import TaskState
from drumline.domain.task import DueTask, TaskBody, encode_task_body
from drumline.handlers.base import Change, Handler
from drumline.task import Task


class Target:
    """A value that handlers change, and the events in order.

    With `held=False` a commit is refused, as for a task that the keeper no longer holds.
    """

    def __init__(self, value: Any = "old", finished: bool = False, held: bool = True) -> None:
        self.value = value
        self.finished = finished
        self.held = held
        self.events: list[str] = []
        self.committed: tuple[str, str] | None = None

    def commit(self, before: str, after: str) -> bool:
        self.events.append("commit")
        if self.held:
            self.committed = (before, after)
        return self.held

    async def commit_async(self, before: str, after: str) -> bool:
        await asyncio.sleep(0)
        return self.commit(before, after)


class Sync(Handler):
    target_type = "t"
    types = ("t",)

    def __init__(self, target: Target) -> None:
        self.target = target

    def build_param(self, task: Task) -> Any:
        self.target.events.append("build_param")
        return Change(self.target.value, ("new", task.attempt))

    def is_finished(self, task: Task) -> bool:
        self.target.events.append("is_finished")
        return self.target.finished

    def process(self, task: Task) -> Any:
        self.target.events.append("process")
        self.target.value = "new"
        return {"before": task.before_update, "after": task.after_update}

    def rollback(self, task: Task) -> Any:
        self.target.events.append("rollback")
        self.target.value = task.before_update
        return "undone"


class Async(Handler):
    """The same handler with async methods."""

    target_type = "t"
    types = ("t",)

    def __init__(self, target: Target) -> None:
        self.sync = Sync(target)

    async def build_param(self, task: Task) -> Any:
        await asyncio.sleep(0)
        return self.sync.build_param(task)

    async def is_finished(self, task: Task) -> bool:
        await asyncio.sleep(0)
        return self.sync.is_finished(task)

    async def process(self, task: Task) -> Any:
        await asyncio.sleep(0)
        return self.sync.process(task)

    async def rollback(self, task: Task) -> Any:
        await asyncio.sleep(0)
        return self.sync.rollback(task)


def new_task(
    *,
    status: TaskState = TaskState.PENDING,
    attempt: int = 1,
    param: str | None = None,
    before: str | None = None,
    after: str | None = None,
) -> Task:
    body = TaskBody("here", "target", None, None, None, param, before, after, None, None)
    return Task(
        DueTask(
            id=1,
            version=4,
            status=status,
            type="t",
            target_type="t",
            priority=5,
            due_at=0,
            timeout_ms=1000,
            batch_id=None,
            attempt=attempt - 1,
            retry_time=0,
            failures=0,
            deaths=0,
            env=None,
            retry=None,
            job_id=None,
            body=encode_task_body(body),
        )
    )
