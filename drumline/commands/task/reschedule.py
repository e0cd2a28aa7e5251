"""`drumline task reschedule`: change the due time or the priority of a waiting task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id, Priority, iso
from drumline.commands.task.schedule import LONGEST_DELAY, Delay, due_time
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class TaskRescheduled(Answer, frozen=True, kw_only=True):
    """The task's due time and priority."""

    task_id: int
    due_at: Moment
    priority: int


class TaskReschedule(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.reschedule"

    task_id: Id
    at: str | None = None
    """The new due time: ISO 8601 with a zone, or epoch seconds."""
    delay: Delay | None = None
    """Seconds from now until the new due time."""
    priority: Priority | None = None

    def change(self, tx: Tx, context: Context) -> TaskRescheduled:
        due_at = due_time(tx.now, self.at, self.delay)
        if due_at is None and self.priority is None:
            raise WrongUse(reason="nothing to change: give a time, a delay or a priority")
        region = context.settings.region
        store.tasks.reschedule(tx, self.task_id, region, due_at, self.priority)
        row = store.tasks.get(tx, self.task_id, region)
        return TaskRescheduled(task_id=row.id, due_at=iso(row.due_at), priority=row.priority)


@groups.task.command(
    "reschedule",
    epilog="""
        drumline task reschedule 3401 --at 2030-07-01T06:00:00Z
        drumline task reschedule 3401 --in 0 --priority 9
    """,
)
@click.argument("task_id", metavar="ID", type=groups.ID)
@click.option("--at", type=option_types.point_in_time, metavar="TIME",
              help="New due time: ISO 8601 with a zone, or epoch seconds.")  # fmt: skip
@click.option("--in", "delay", type=option_types.seconds(0, LONGEST_DELAY), metavar="SECONDS",
              help="New due time, in seconds from now.")  # fmt: skip
@click.option("--priority", type=option_types.PRIORITY, help="New priority; 9 is the most urgent.")
@option_types.request_id
def reschedule(request_id: str | None, **arguments: Any) -> None:
    """Change the due time or the priority of a waiting task."""
    if arguments["at"] is not None and arguments["delay"] is not None:
        raise click.UsageError("give --at or --in, not both")
    if all(arguments[name] is None for name in ("at", "delay", "priority")):
        raise click.UsageError("give --at, --in or --priority")
    answer = gateway.change("task.reschedule", arguments, request_id)
    output.print_result(
        answer,
        f"task {answer['task_id']}: due {answer['due_at']}, priority {answer['priority']}",
    )
