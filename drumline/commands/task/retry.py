"""`drumline task retry`: run a failed task again, or roll it back again if that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id
from drumline.domain.states import TaskState

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class TaskRetried(Answer, frozen=True, kw_only=True):
    """The task's new state."""

    task_id: int
    status: TaskState


class TaskRetry(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.retry"

    task_id: Id

    def change(self, tx: Tx, context: Context) -> TaskRetried:
        region = context.settings.region
        job_id = store.tasks.get(tx, self.task_id, region).job_id
        if job_id is not None:
            store.decisions.admit_again(tx, job_id)
        status = store.tasks.retry(tx, self.task_id, region)
        return TaskRetried(task_id=self.task_id, status=status)


@groups.task.command("retry", epilog="drumline task retry 3401")
@click.argument("task_id", metavar="ID", type=groups.ID)
@option_types.request_id
def retry(task_id: int, request_id: str | None) -> None:
    """Run a failed task again."""
    answer = gateway.change("task.retry", {"task_id": task_id}, request_id)
    output.print_result(answer, f"task {task_id}: {answer['status']}")
