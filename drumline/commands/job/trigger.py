"""`drumline job trigger`: fire a job now, by hand, under its concurrency rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.job.fields import Key
from drumline.domain.states import TaskState

if TYPE_CHECKING:
    from drumline.store.tx import Tx

DONE = {TaskState.PENDING: "runs", TaskState.SCHEDULED: "queued", TaskState.SKIPPED: "skipped"}
REFUSED = 5


class JobTrigger(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.trigger"

    job: Key

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = store.jobs.get(tx, context.settings.region, self.job)
        task_id, decision = store.decisions.trigger(tx, row.id)
        return {
            "job_id": row.id,
            "name": row.name,
            "task_id": task_id,
            "done": DONE[decision.state],
            "cause": decision.cause,
            "reason": decision.reason,
            "run_attempt": decision.run_attempt,
        }


@groups.job.command(
    "trigger",
    epilog="""
        drumline job trigger report
        drumline job trigger report --json | jq .task_id
    """,
)
@click.argument("job", metavar="JOB", type=terminal.text(128))
@terminal.changes
def trigger(job: str, request_id: str | None) -> int:
    """Fire a job now. Overlap and failure rules do not apply, its concurrency limit does."""
    done = terminal.change("job.trigger", {"job": job}, request_id)
    words = f"job {done['job_id']} {done['name']}: task {done['task_id']} {done['reason']}"
    terminal.answer(done, words)
    return REFUSED if done["done"] == "skipped" else 0
