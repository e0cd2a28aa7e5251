"""`drumline job runs`: what became of a job's firings, the latest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import PAGE_LIMIT, Limit, iso, moment
from drumline.commands.job.fields import Key
from drumline.domain.states import TaskState
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from sqlalchemy import Row

    from drumline.store.tx import Tx

REASON_LIMIT = 300

Time = Annotated[str, Meta(max_length=64)]


class JobRuns(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.runs"

    job: Key
    status: Annotated[tuple[TaskState, ...], Meta(max_length=len(TaskState))] = ()
    """All states if none is named. Firings that are still to come are `scheduled` ones."""
    since: Time | None = None
    """By their scheduled times: from this one on."""
    until: Time | None = None
    before: Time | None = None
    """The last one of the previous page."""
    limit: Limit = 50

    def answer(self, context: Context) -> dict[str, Any]:
        since, until, before = (
            _moment(name, getattr(self, name)) for name in ("since", "until", "before")
        )

        def look(tx: Tx) -> tuple[int, list[Row[Any]]]:
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

        job_id, rows = context.db.read(look)
        more = len(rows) == self.limit
        return {
            "job_id": job_id,
            "runs": [brief(row) for row in rows],
            "next": iso(rows[-1].scheduled_at) if more else None,
        }


def brief(row: Row[Any]) -> dict[str, Any]:
    """A run in a list; `task.show` has all of it."""
    return {
        "id": row.id,
        "job_id": row.job_id,
        "status": row.status,
        "cause": row.cause,
        "reason": row.info and row.info[:REASON_LIMIT],
        "scheduled_at": iso(row.scheduled_at),
        "due_at": iso(row.due_at),
        "started_at": iso(row.started_at or None),
        "finished_at": iso(row.finished_at or None),
        "fired_by": row.fired_by,
        "run_attempt": row.run_attempt,
        "attempt": row.attempt,
        "trace_id": row.trace_id,
    }


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
@click.argument("job", metavar="JOB", type=terminal.text(128))
@click.option("--status", multiple=True, type=click.Choice([state.value for state in TaskState]),
              help="Only in this state. May be given many times.")  # fmt: skip
@click.option(
    "--since", type=terminal.point_in_time, metavar="TIME", help="Scheduled then or later."
)
@click.option(
    "--until", type=terminal.point_in_time, metavar="TIME", help="Scheduled then or before."
)
@click.option("--before", type=terminal.point_in_time, metavar="TIME", help="The next page.")
@click.option("--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True)
def runs(job: str, **options: Any) -> None:
    """List a job's runs, and the firings that were skipped with their reasons."""
    found = terminal.ask("job.runs", {"job": job, **options})
    rows = [
        (one["id"], one["scheduled_at"], one["status"], one["cause"], one["run_attempt"],
         one["attempt"], one["finished_at"], (one["reason"] or "").partition("\n")[0][:60])
        for one in found["runs"]
    ]  # fmt: skip
    columns = ("id", "scheduled", "status", "cause", "number", "attempt", "finished", "reason")
    terminal.table(found, columns, rows, nothing="It has no such runs.")
    if found["next"] is not None and not groups.wants_json():
        terminal.say(f"There may be more: --before {found['next']}")
