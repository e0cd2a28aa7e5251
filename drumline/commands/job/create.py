"""`drumline job create`: create a job from options or from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec

from drumline.cli import gateway, groups, job_options, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.commands.job import fields
from drumline.commands.job.answers import JobSummary, summarise_job
from drumline.commands.job.fields import Cron, JobFields, Name

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class JobCreate(JobFields, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.create"

    job_name: Name = msgspec.field(name="name")
    cron_expr: Cron

    def change(self, tx: Tx, context: Context) -> JobSummary:
        region = context.settings.region
        job_id = store.jobs.create(tx, region, fields.new_row(tx, context, self.given()))
        return summarise_job(tx, store.jobs.get(tx, region, job_id))


@groups.job.command(
    "create",
    epilog="""
        drumline job create ping --cron '*/5 * * * * *' --url http://service/ping
        drumline job create report --cron '0 6 * * mon-fri' --timezone Europe/Berlin --type report
        drumline job create sync --cron '@after 90s' --type sync --overlap SKIP
        drumline job create --file job.json
    """,
)
@click.argument("job_name", metavar="[NAME]", required=False, type=option_types.text(128))
@job_options.definition
@option_types.request_id
def create(job_name: str | None, request_id: str | None, **options: Any) -> None:
    """Create a job: a schedule, and the URL to call or the task to run at its times."""
    fields = job_options.fields(options)
    if job_name is not None:
        fields["name"] = job_name
    for name, option in (("name", "NAME"), ("cron_expr", "--cron")):
        if name not in fields:
            raise click.UsageError(
                f"a job needs a {name}: give {option}, or a --file that contains it"
            )
    answer = gateway.change("job.create", fields, request_id)
    next_firing = answer["next_firing"] or "after its runs, the first at once"
    output.print_result(
        answer,
        f"job {answer['id']} {answer['name']}: {answer['cron_expr']}, next {next_firing}",
    )
