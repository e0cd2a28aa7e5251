"""`drumline job trigger`: fire a job now, subject to its concurrency limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.job.fields import Key
from drumline.domain.states import Cause, TaskState

if TYPE_CHECKING:
    from drumline.store.tx import Tx

OUTCOMES: dict[TaskState, Literal["runs", "queued", "skipped"]] = {
    TaskState.PENDING: "runs",
    TaskState.SCHEDULED: "queued",
    TaskState.SKIPPED: "skipped",
}
SKIPPED_EXIT_CODE = 5


class JobTriggered(Answer, frozen=True, kw_only=True):
    """The task of the firing, and whether it runs."""

    job_id: int
    name: str
    task_id: int
    done: Literal["runs", "queued", "skipped"]
    cause: Cause | None
    reason: str
    run_attempt: int
    """The number of the run among the runs of the job."""


class JobTrigger(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.trigger"

    job: Key

    def change(self, tx: Tx, context: Context) -> JobTriggered:
        row = store.jobs.get(tx, context.settings.region, self.job)
        task_id, decision = store.decisions.trigger(tx, row.id)
        return JobTriggered(
            job_id=row.id,
            name=row.name,
            task_id=task_id,
            done=OUTCOMES[decision.state],
            cause=decision.cause,
            reason=decision.reason,
            run_attempt=decision.run_attempt,
        )


@groups.job.command(
    "trigger",
    epilog="""
        drumline job trigger report
        drumline job trigger report --json | jq .task_id
    """,
)
@click.argument("job", metavar="JOB", type=option_types.text(128))
@option_types.request_id
def trigger(job: str, request_id: str | None) -> int:
    """Fire a job now. Its concurrency limit applies; its overlap and failure rules do not.

    Exit 5 if the firing is skipped.
    """
    answer = gateway.change("job.trigger", {"job": job}, request_id)
    words = f"job {answer['job_id']} {answer['name']}: task {answer['task_id']} {answer['reason']}"
    output.print_result(answer, words)
    return SKIPPED_EXIT_CODE if answer["done"] == "skipped" else 0
