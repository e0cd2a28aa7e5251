"""`drumline task cancel`: one task, at once if it waits, at its end or by force if it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import steering, store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id

if TYPE_CHECKING:
    from drumline.store.tx import Tx

WORDS = {
    "cancel": "cancelled",
    "stopping": "still running; it is cancelled when it ends (--force kills it)",
    "killing": "being killed",
}


class TaskCancel(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.cancel"

    task_id: Id
    force: bool = False

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        state = store.tasks.cancel(tx, self.task_id, context.settings.region, self.force)
        return {"task_id": self.task_id, "state": state}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        if answer["state"] == "killing":
            steering.kill_run(context, self.task_id)
        context.ring()


@groups.task.command(
    "cancel",
    epilog="""
        drumline task cancel 3401
        drumline task cancel 3401 --force
    """,
)
@click.argument("task_id", metavar="ID", type=groups.ID)
@click.option("--force", is_flag=True, help="Kill it if it runs.")
@terminal.changes
def cancel(task_id: int, force: bool, request_id: str | None) -> None:
    """Cancel a task."""
    done = terminal.change("task.cancel", {"task_id": task_id, "force": force}, request_id)
    terminal.answer(done, f"task {task_id}: {WORDS[done['state']]}")
