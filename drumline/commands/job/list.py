"""`drumline job list`: jobs by status, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click

from drumline.cli import gateway, groups, output, paging
from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.command_layer.paging import PageQuery
from drumline.commands.job.answers import JobPage, JobSummary, summarise_job

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class JobList(PageQuery, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.list"

    status: Literal["ENABLED", "DISABLED"] | None = None
    """Only jobs with this status."""

    def answer(self, context: Context) -> JobPage:
        def read(tx: Tx) -> list[JobSummary]:
            rows = store.jobs.listed(
                tx,
                context.settings.region,
                status=self.status,
                before=self.before,
                limit=self.limit,
            )
            return [summarise_job(tx, row) for row in rows]

        jobs = context.db.read(read)
        return JobPage(jobs=jobs, next=self.next_page(jobs))


@groups.job.command(
    "list",
    epilog="""
        drumline job list
        drumline job list --status DISABLED --limit 10
        drumline job list --before 100 --json
    """,
)
@click.option("--status", type=click.Choice(["ENABLED", "DISABLED"], case_sensitive=False),
              help="Only jobs with this status.")  # fmt: skip
@paging.options("jobs")
def list_(**options: Any) -> None:
    """List jobs, the newest first."""
    page = gateway.query("job.list", options)
    rows = [
        (job["id"], job["name"], job["cron_expr"], job["timezone"],
         job["target_url"] or job["type"], job["status"], job["next_firing"],
         job["last_run"] and job["last_run"]["status"])
        for job in page["jobs"]
    ]  # fmt: skip
    columns = ("id", "name", "schedule", "timezone", "does", "status", "next", "last run")
    output.print_table(page, columns, rows, nothing="There are no jobs.")
    output.print_next_page(page["next"])
