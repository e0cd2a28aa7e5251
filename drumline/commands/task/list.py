"""`drumline task list`: tasks by batch, state and type, the newest first."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output, paging
from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.command_layer.fields import Id, Type
from drumline.command_layer.paging import PageQuery
from drumline.commands.task.answers import TaskPage, summarise_task
from drumline.domain.states import TaskState


class TaskList(PageQuery, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.list"

    batch_id: Id | None = None
    status: Annotated[tuple[TaskState, ...], Meta(max_length=len(TaskState))] = ()
    """Only tasks in these states; all states if none is given."""
    type: Type | None = None

    def answer(self, context: Context) -> TaskPage:
        rows = context.db.read(
            lambda tx: store.tasks.listed(
                tx,
                context.settings.region,
                batch_id=self.batch_id,
                statuses=self.status,
                type=self.type,
                before=self.before,
                limit=self.limit,
            )
        )
        return TaskPage(tasks=[summarise_task(row) for row in rows], next=self.next_page(rows))


@groups.task.command(
    "list",
    epilog="""
        drumline task list --batch 12 --status fail --status cancel
        drumline task list --type demo.noop --limit 10
        drumline task list --before 3400 --json
    """,
)
@click.option("--batch", "batch_id", type=groups.ID, metavar="ID", help="Only tasks of this batch.")
@click.option("--status", multiple=True, type=click.Choice([state.value for state in TaskState]),
              help="Only tasks in this state; may be repeated.")  # fmt: skip
@click.option("--type", "type_", type=option_types.TYPE, help="Only tasks of this type.")
@paging.options("tasks")
def list_(type_: str | None, **options: Any) -> None:
    """List tasks, the newest first."""
    page = gateway.query("task.list", {"type": type_, **options})
    rows = [
        (task["id"], task["type"], task["target_id"] or task["instance_id"], task["status"],
         task["cause"], task["attempt"], task["batch_id"], task["due_at"], task["finished_at"])
        for task in page["tasks"]
    ]  # fmt: skip
    columns = (
        "id", "type", "target", "status", "cause", "attempt", "batch", "due", "finished",
    )  # fmt: skip
    output.print_table(page, columns, rows, nothing="There are no such tasks.")
    output.print_next_page(page["next"])
