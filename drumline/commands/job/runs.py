"""`drumline job runs`: the runs and the skipped firings of a job, the latest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output, paging
from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Limit, iso, moment
from drumline.commands.job.fields import Key
from drumline.domain.states import Cause, TaskState
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.store.job.firings import JobRunRow
    from drumline.store.tx import Tx

REASON_LIMIT = 300

Time = Annotated[str, Meta(max_length=64)]


class JobRun(Answer, frozen=True, kw_only=True):
    """A run of a job, or a firing that was skipped. `task.show` has all of its fields."""

    id: int
    job_id: int
    status: TaskState
    cause: Cause | None
    reason: str | None
    scheduled_at: Moment
    due_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    fired_by: str | None
    run_attempt: int | None
    """The number of the run among the runs of its job."""
    attempt: int
    trace_id: str | None


class JobRunPage(Answer, frozen=True, kw_only=True):
    """A page of runs, the latest first."""

    job_id: int
    runs: list[JobRun]
    next: str | None
    """The `before` of the next page."""


class JobRuns(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.runs"

    job: Key
    status: Annotated[tuple[TaskState, ...], Meta(max_length=len(TaskState))] = ()
    """Only runs in these states; all but future firings (`scheduled`) if none is given."""
    since: Time | None = None
    """Only runs that were scheduled at or after this time."""
    until: Time | None = None
    """Only runs that were scheduled at or before this time."""
    before: Time | None = None
    """Only runs that were scheduled before this time: the `next` of the previous page."""
    limit: Limit = 50
    """The size of a page."""

    def answer(self, context: Context) -> JobRunPage:
        since, until, before = (
            _moment(name, getattr(self, name)) for name in ("since", "until", "before")
        )

        def read(tx: Tx) -> tuple[int, list[JobRunRow]]:
            row = store.jobs.get(tx, context.settings.region, self.job)
            ends = [at for at in (until, before and before - 1) if at is not None]
            if TaskState.SCHEDULED not in self.status:
                ends.append(tx.now)
            rows = store.firings.runs_of(
                tx,
                row.id,
                statuses=self.status,
                since=since,
                until=min(ends, default=None),
                limit=self.limit,
            )
            return row.id, rows

        job_id, rows = context.db.read(read)
        is_full = len(rows) == self.limit
        return JobRunPage(
            job_id=job_id,
            runs=[_describe_run(row) for row in rows],
            next=iso(rows[-1].scheduled_at) if is_full else None,
        )


def _describe_run(row: JobRunRow) -> JobRun:
    return JobRun(
        id=row.id,
        job_id=row.job_id,
        status=row.status,
        cause=row.cause,
        reason=row.info and row.info[:REASON_LIMIT],
        scheduled_at=iso(row.scheduled_at),
        due_at=iso(row.due_at),
        started_at=iso(row.started_at or None),
        finished_at=iso(row.finished_at or None),
        fired_by=row.fired_by,
        run_attempt=row.run_attempt,
        attempt=row.attempt,
        trace_id=row.trace_id,
    )


def _moment(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else moment(text)
    except WrongUse as error:
        raise WrongUse(field=name, reason=str(error)) from None


@groups.job.command(
    "runs",
    epilog="""
        drumline job runs report
        drumline job runs report --status fail --status skipped --since 2030-01-01T00:00:00Z
        drumline task show 3401
    """,
)
@click.argument("job", metavar="JOB", type=option_types.text(128))
@click.option("--status", multiple=True, type=click.Choice([state.value for state in TaskState]),
              help="Only runs in this state; may be repeated.")  # fmt: skip
@click.option(
    "--since",
    type=option_types.point_in_time,
    metavar="TIME",
    help="Scheduled at or after this time.",
)
@click.option(
    "--until",
    type=option_types.point_in_time,
    metavar="TIME",
    help="Scheduled at or before this time.",
)
@click.option(
    "--before", type=option_types.point_in_time, metavar="TIME", help="Scheduled before this time."
)
@paging.limit
def runs(job: str, **options: Any) -> None:
    """List a job's runs, and its skipped firings with their reasons."""
    page = gateway.query("job.runs", {"job": job, **options})
    rows = [
        (run["id"], run["scheduled_at"], run["status"], run["cause"], run["run_attempt"],
         run["attempt"], run["finished_at"], (run["reason"] or "").partition("\n")[0][:60])
        for run in page["runs"]
    ]  # fmt: skip
    columns = ("id", "scheduled", "status", "cause", "number", "attempt", "finished", "reason")
    output.print_table(page, columns, rows, nothing="The job has no such runs.")
    output.print_next_page(page["next"])
