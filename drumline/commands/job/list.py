"""`drumline job list`: the newest jobs, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import PAGE_LIMIT, Id, Limit
from drumline.commands.job.show import described

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class JobList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.list"

    status: Literal["ENABLED", "DISABLED"] | None = None
    before: Id | None = None
    limit: Limit = 50

    def answer(self, context: Context) -> dict[str, Any]:
        def look(tx: Tx) -> list[dict[str, Any]]:
            rows = store.jobs.listed(
                tx,
                context.settings.region,
                status=self.status,
                before=self.before,
                limit=self.limit,
            )
            return [described(tx, row) for row in rows]

        found = context.db.read(look)
        more = len(found) == self.limit
        return {"jobs": found, "next": found[-1]["id"] if more else None}


@groups.job.command(
    "list",
    epilog="""
        drumline job list
        drumline job list --status DISABLED --limit 10
        drumline job list --before 100 --json
    """,
)
@click.option("--status", type=click.Choice(["ENABLED", "DISABLED"], case_sensitive=False))
@click.option("--before", type=groups.ID, metavar="ID", help="Only older ones than this job.")
@click.option("--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True)
def list_(**options: Any) -> None:
    """List jobs, the newest first."""
    found = terminal.ask("job.list", options)
    rows = [
        (one["id"], one["name"], one["cron_expr"], one["timezone"],
         one["target_url"] or one["type"], one["status"], one["next_firing"],
         one["last_run"] and one["last_run"]["status"])
        for one in found["jobs"]
    ]  # fmt: skip
    columns = ("id", "name", "schedule", "timezone", "does", "status", "next", "last run")
    terminal.table(found, columns, rows, nothing="There are no jobs.")
    terminal.more(found["next"])
