"""`drumline task show`: a task, its failed attempts, and why it is waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import gateway, groups, output
from drumline.command_layer import store, why_waiting
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Id
from drumline.commands.task.answers import TaskDetail, describe_task

if TYPE_CHECKING:
    from drumline.store.rows import AttemptRow
    from drumline.store.task.tasks import TaskDetailRow
    from drumline.store.tx import Tx


class TaskShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.show"

    task_id: Id

    def answer(self, context: Context) -> TaskDetail:
        def read(tx: Tx) -> tuple[TaskDetailRow, list[AttemptRow], why_waiting.TaskFacts]:
            row = store.tasks.get(tx, self.task_id, context.settings.region)
            return row, store.tasks.attempts(tx, row.id), why_waiting.read_facts(tx, row)

        row, attempts, facts = context.db.read(read)
        why = why_waiting.explain(facts, lambda: why_waiting.ask_dispatcher(context))
        return describe_task(row, attempts, why)


@groups.task.command(
    "show",
    epilog="""
        drumline task show 3401
        drumline task show 3401 --json | jq .why
    """,
)
@click.argument("task_id", metavar="ID", type=groups.ID)
def show(task_id: int) -> None:
    """Show a task: its state, its outcome, and why it is waiting."""
    task = gateway.query("task.show", {"task_id": task_id})
    first = ("status", "cause", "why")
    hidden = {"id", "attempts", "target_param", "keeper", "version", *first}
    hidden |= {name for name in ("retry_time", "failures", "deaths") if not task[name]}
    output.print_record(
        task,
        [
            ("task", task["id"]),
            *((name, task[name]) for name in first),
            *((name, value) for name, value in task.items() if name not in hidden),
            *task["target_param"].items(),
            *((f"attempt {one['attempt']}", _format_attempt(one)) for one in task["attempts"]),
        ],
    )


def _format_attempt(attempt: dict[str, Any]) -> str:
    first_line = (attempt["info"] or "").partition("\n")[0]
    return f"{attempt['cause']} on {attempt['worker']} at {attempt['finished_at']}: {first_line}"
