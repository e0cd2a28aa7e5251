"""`drumline task cancel`: cancel a task, at once if it waits, else when it ends or by force."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import kills, store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id

if TYPE_CHECKING:
    from drumline.store.tx import Tx

WORDS = {
    "cancel": "cancelled",
    "stopping": "still running; will be cancelled when it ends (--force kills it)",
    "killing": "being killed",
}


class TaskCancelled(Answer, frozen=True, kw_only=True):
    """What became of the task."""

    task_id: int
    state: Literal["cancel", "stopping", "killing"]


class TaskCancel(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.cancel"

    task_id: Id
    force: bool = False
    """Kill the task if it is running."""

    def change(self, tx: Tx, context: Context) -> TaskCancelled:
        state = store.tasks.cancel(tx, self.task_id, context.settings.region, self.force)
        return TaskCancelled(task_id=self.task_id, state=state)  # type: ignore[arg-type]

    def after_commit(self, context: Context, answer: TaskCancelled) -> None:
        if answer.state == "killing":
            kills.kill_task(context, self.task_id)
        context.notify_scanner()


@groups.task.command(
    "cancel",
    epilog="""
        drumline task cancel 3401
        drumline task cancel 3401 --force
    """,
)
@click.argument("task_id", metavar="ID", type=groups.ID)
@click.option("--force", is_flag=True, help="Kill the task if it is running.")
@option_types.request_id
def cancel(task_id: int, force: bool, request_id: str | None) -> None:
    """Cancel a task."""
    answer = gateway.change("task.cancel", {"task_id": task_id, "force": force}, request_id)
    output.print_result(answer, f"task {task_id}: {WORDS[answer['state']]}")
