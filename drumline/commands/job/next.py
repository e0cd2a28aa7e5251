"""`drumline job next`: when a job, or a bare expression, fires next, through clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Text64, iso, moment
from drumline.commands.job.fields import Cron, Key
from drumline.domain.jobs.schedule import Schedule
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx

MOST = 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JobNext(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.next"

    job: Key | None = None
    cron_expr: Cron | None = None
    """Instead of a job."""
    timezone: Text64 = "UTC"
    after: Annotated[str, Meta(max_length=64)] | None = None
    """Now, if it is not said."""
    count: Annotated[int, Meta(ge=1, le=MOST)] = 5

    def answer(self, context: Context) -> dict[str, Any]:
        if (self.job is None) == (self.cron_expr is None):
            raise WrongUse(reason="give a job or a cron_expr")

        def look(tx: Tx) -> dict[str, Any]:
            after = tx.now if self.after is None else moment(self.after)
            planned: list[int] = []
            if self.cron_expr is not None:
                schedule = Schedule.parse(self.cron_expr, self.timezone)
            else:
                row = store.jobs.get(tx, context.settings.region, self.job or "")
                schedule = store.jobs.schedule_of(row)
                planned = list(store.jobs.next_planned(tx, [row.id]).values())
            if schedule.by_clock:
                planned = list(islice(_following(schedule, after), self.count))
            return {
                "cron_expr": schedule.text,
                "timezone": schedule.zone.key,
                "firings": [{"utc": iso(at), "local": _local(schedule, at)} for at in planned],
            }

        return context.db.read(look)


def _following(schedule: Schedule, after: int) -> Any:
    at = schedule.next_after(after)
    while at is not None:
        yield at
        at = schedule.next_after(at)


def _local(schedule: Schedule, at: int) -> str:
    return (EPOCH + timedelta(microseconds=at)).astimezone(schedule.zone).isoformat()


@groups.job.command(
    "next",
    epilog="""
        drumline job next report
        drumline job next '0 30 2 * * sun' --timezone Europe/Berlin --count 10
        drumline job next '@daily 08:00,17:30' --after 2030-03-30T00:00:00Z
    """,
)
@click.argument("what", metavar="JOB_OR_EXPR", type=terminal.text(255))
@click.option("--timezone", metavar="TZ", help="Of a bare expression; UTC if not said.")
@click.option("--after", type=terminal.point_in_time, metavar="TIME", help="Now, if not said.")
@click.option("--count", type=click.IntRange(1, MOST), default=5, show_default=True)
def next_(what: str, **options: Any) -> None:
    """Show when a job fires next, or a bare expression would."""
    bare = what.startswith("@") or len(what.split()) > 4
    if options["timezone"] is not None and not bare:
        raise click.UsageError("a job has its own time zone")
    arguments = {"cron_expr" if bare else "job": what, **options}
    found = terminal.ask("job.next", arguments)
    rows = [(one["utc"], one["local"]) for one in found["firings"]]
    terminal.table(found, ("utc", "local"), rows, nothing="It does not fire again by the clock.")
