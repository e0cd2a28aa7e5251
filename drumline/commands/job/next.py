"""`drumline job next`: the next firings of a job or of a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Text64, iso, moment
from drumline.commands.job.answers import firings_after
from drumline.commands.job.fields import Cron, Key
from drumline.domain.jobs.schedule import Schedule
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx

MAX_FIRINGS = 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JobFiring(Answer, frozen=True, kw_only=True):
    """A time at which a job fires."""

    utc: Moment
    local: Moment


class JobFirings(Answer, frozen=True, kw_only=True):
    """The next firings of a schedule."""

    cron_expr: str
    timezone: str
    firings: list[JobFiring]


class JobNext(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.next"

    job: Key | None = None
    cron_expr: Cron | None = None
    """A cron expression, in place of a job."""
    timezone: Text64 = "UTC"
    """The time zone of `cron_expr`."""
    after: Annotated[str, Meta(max_length=64)] | None = None
    """Only firings after this time; by default, now."""
    count: Annotated[int, Meta(ge=1, le=MAX_FIRINGS)] = 5

    def answer(self, context: Context) -> JobFirings:
        if (self.job is None) == (self.cron_expr is None):
            raise WrongUse(reason="give a job or a cron_expr")

        def read(tx: Tx) -> JobFirings:
            after = tx.now if self.after is None else moment(self.after)
            planned: list[int] = []
            if self.cron_expr is not None:
                schedule = Schedule.parse(self.cron_expr, self.timezone)
            else:
                row = store.jobs.get(tx, context.settings.region, self.job or "")
                schedule = store.jobs.schedule_of(row)
                planned = list(store.jobs.next_planned(tx, [row.id]).values())
            if schedule.by_clock:
                planned = list(islice(firings_after(schedule, after), self.count))
            return JobFirings(
                cron_expr=schedule.text,
                timezone=schedule.zone.key,
                firings=[JobFiring(utc=iso(at), local=_local(schedule, at)) for at in planned],
            )

        return context.db.read(read)


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
@click.argument("what", metavar="JOB_OR_EXPR", type=option_types.text(255))
@click.option("--timezone", metavar="TZ", help="Time zone of the expression; by default, UTC.")
@click.option(
    "--after",
    type=option_types.point_in_time,
    metavar="TIME",
    help="Only firings after this time; by default, now.",
)
@click.option("--count", type=click.IntRange(1, MAX_FIRINGS), default=5, show_default=True)
def next_(what: str, **options: Any) -> None:
    """Show the next firings of a job or of a cron expression."""
    is_expression = what.startswith("@") or len(what.split()) > 4
    if options["timezone"] is not None and not is_expression:
        raise click.UsageError("--timezone is for expressions; a job has its own time zone")
    arguments = {"cron_expr" if is_expression else "job": what, **options}
    answer = gateway.query("job.next", arguments)
    rows = [(firing["utc"], firing["local"]) for firing in answer["firings"]]
    output.print_table(
        answer, ("utc", "local"), rows, nothing="There are no further firings by the clock."
    )
