"""`drumline task show`: one task, whole, with its failed attempts and why it is waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store, why_waiting
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Id, from_json, iso
from drumline.commands.task.list import brief

if TYPE_CHECKING:
    from sqlalchemy import Row

    from drumline.store.tx import Tx


class TaskShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.show"

    task_id: Id

    def answer(self, context: Context) -> dict[str, Any]:
        def look(tx: Tx) -> tuple[Row[Any], list[Row[Any]], why_waiting.Facts]:
            row = store.tasks.get(tx, self.task_id, context.settings.region)
            return row, store.tasks.attempts(tx, row.id), why_waiting.facts(tx, row)

        row, attempts, facts = context.db.read(look)
        return described(row) | {
            "why": why_waiting.explain(facts, lambda: why_waiting.read_dispatcher_state(context)),
            "attempts": [tried(attempt) for attempt in attempts],
        }


def described(row: Row[Any]) -> dict[str, Any]:
    """A task as every door shows it."""
    return brief(row) | {
        "info": row.info,
        "retry_time": row.retry_time,
        "failures": row.failures,
        "deaths": row.deaths,
        "stop_asked": {0: None, 1: "cancel"}.get(row.stop, "kill"),
        "owner": row.owner_name,
        "keeper": row.owner if row.owner_name is not None else None,
        "fence": row.fence,
        "last_heartbeat": iso(row.last_heartbeat),
        "timeout": row.timeout_ms / 1000,
        "param": from_json(row.param),
        "target_env": row.target_env,
        "target_param": {
            "before_update": from_json(row.before_update),
            "after_update": from_json(row.after_update),
        },
        "result": from_json(row.result),
        "env": row.env,
        "region": row.region,
        "version": row.version,
        "scheduled_at": iso(row.scheduled_at),
        "run_attempt": row.run_attempt,
        "fired_by": row.fired_by,
        "trace_id": row.trace_id,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "last_failure_at": iso(row.last_failure_at),
    }


def tried(row: Row[Any]) -> dict[str, Any]:
    """An attempt that did not succeed."""
    return {
        "attempt": row.attempt,
        "cause": row.cause,
        "info": row.info,
        "worker": row.worker,
        "started_at": iso(row.started_at or None),
        "finished_at": iso(row.finished_at or None),
    }


@groups.task.command(
    "show",
    epilog="""
        drumline task show 3401
        drumline task show 3401 --json | jq .why
    """,
)
@click.argument("task_id", metavar="ID", type=groups.ID)
def show(task_id: int) -> None:
    """Show a task, what became of it, or why it is waiting."""
    found = terminal.ask("task.show", {"task_id": task_id})
    first = ("status", "cause", "why")
    hidden = {"id", "attempts", "target_param", "keeper", "version", *first}
    counters = ("retry_time", "failures", "deaths")
    hidden |= {name for name in counters if not found[name]}
    terminal.record(
        found,
        [
            ("task", found["id"]),
            *((name, found[name]) for name in first),
            *((name, value) for name, value in found.items() if name not in hidden),
            *found["target_param"].items(),
            *((f"attempt {one['attempt']}", _sentence(one)) for one in found["attempts"]),
        ],
    )


def _sentence(attempt: dict[str, Any]) -> str:
    first_line = (attempt["info"] or "").partition("\n")[0]
    return f"{attempt['cause']} on {attempt['worker']} at {attempt['finished_at']}: {first_line}"
