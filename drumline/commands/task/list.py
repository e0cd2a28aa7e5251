"""`drumline task list`: the newest tasks, by batch, state and type, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import PAGE_LIMIT, Id, Limit, Type, iso
from drumline.domain.states import TaskState

if TYPE_CHECKING:
    from sqlalchemy import Row


class TaskList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.list"

    batch_id: Id | None = None
    status: Annotated[tuple[TaskState, ...], Meta(max_length=len(TaskState))] = ()
    """All states if none is named."""
    type: Type | None = None
    before: Id | None = None
    limit: Limit = 50

    def answer(self, context: Context) -> dict[str, Any]:
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
        more = len(rows) == self.limit
        return {"tasks": [brief(row) for row in rows], "next": rows[-1].id if more else None}


def brief(row: Row[Any]) -> dict[str, Any]:
    """A task in a list."""
    return {
        "id": row.id,
        "batch_id": row.batch_id,
        "job_id": row.job_id,
        "type": row.type,
        "target_type": row.target_type,
        "target_id": row.target_id,
        "target_name": row.target_name,
        "instance_id": row.instance_id,
        "status": row.status,
        "cause": row.cause,
        "attempt": row.attempt,
        "priority": row.priority,
        "due_at": iso(row.due_at),
        "started_at": iso(row.started_at or None),
        "finished_at": iso(row.finished_at or None),
    }


@groups.task.command(
    "list",
    epilog="""
        drumline task list --batch 12 --status fail --status cancel
        drumline task list --type demo.noop --limit 10
        drumline task list --before 3400 --json
    """,
)
@click.option("--batch", "batch_id", type=groups.ID, metavar="ID", help="Only of this batch.")
@click.option("--status", multiple=True, type=click.Choice([state.value for state in TaskState]),
              help="Only in this state. May be given many times.")  # fmt: skip
@click.option("--type", "type_", type=terminal.TYPE, help="Only of this type.")
@click.option("--before", type=groups.ID, metavar="ID", help="Only older ones than this task.")
@click.option("--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True)
def list_(type_: str | None, **options: Any) -> None:
    """List tasks, the newest first."""
    found = terminal.ask("task.list", {"type": type_, **options})
    rows = [
        (one["id"], one["type"], one["target_id"] or one["instance_id"], one["status"],
         one["cause"], one["attempt"], one["batch_id"], one["due_at"], one["finished_at"])
        for one in found["tasks"]
    ]  # fmt: skip
    columns = (
        "id", "type", "target", "status", "cause", "attempt", "batch", "due", "finished",
    )  # fmt: skip
    terminal.table(found, columns, rows, nothing="There are no such tasks.")
    terminal.more(found["next"])
