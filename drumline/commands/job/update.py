"""`drumline job update`: change some of a job's fields. Its unstarted firings are removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, job_options, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.commands.job import fields
from drumline.commands.job.answers import JobSummary, summarise_job
from drumline.commands.job.fields import JobFields, Key
from drumline.commands.job.switch import version_option
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class JobUpdate(JobFields, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.update"

    job: Key
    version: Annotated[int, Meta(ge=1)] | None = None
    """The version that was read; if the job has another one, nothing is changed."""
    unset: tuple[str, ...] = ()
    """Fields to set back to their defaults."""

    def change(self, tx: Tx, context: Context) -> JobSummary:
        row = store.jobs.get(tx, context.settings.region, self.job)
        given = self.given()
        for name in self.unset:
            if name not in fields.DEFAULTS:
                known = ", ".join(fields.DEFAULTS)
                raise WrongUse(
                    field="unset", reason=f"{name!r} cannot be unset; these can: {known}"
                )
            given.setdefault(name, fields.DEFAULTS[name])
        if not given:
            raise WrongUse(reason="there is nothing to change: name at least one field")
        given = fields.restore_masked_headers(row, given)
        values = fields.changed_row(tx, context, row, given)
        store.jobs.change(tx, row, self.version, values)
        return summarise_job(tx, store.jobs.get(tx, context.settings.region, row.id))


@groups.job.command(
    "update",
    epilog="""
        drumline job update report --cron '0 7 * * mon-fri'
        drumline job update 12 --url http://service/v2 --version 3
        drumline job update report --unset ends_at
    """,
)
@click.argument("job", metavar="JOB", type=option_types.text(128))
@click.option("--name", type=option_types.text(128), help="New name.")
@version_option
@click.option("--unset", multiple=True, metavar="FIELD", help="Set a field back to its default.")
@job_options.definition
@option_types.request_id
def update(
    job: str,
    version: int | None,
    unset: tuple[str, ...],
    request_id: str | None,
    **options: Any,
) -> None:
    """Change a job. Fields that are not given stay unchanged."""
    fields = job_options.fields(options)
    arguments = fields | {"job": job, "version": version, "unset": unset}
    answer = gateway.change("job.update", arguments, request_id)
    next_firing = answer["next_firing"] or "-"
    output.print_result(
        answer,
        f"job {answer['id']} {answer['name']}: version {answer['version']}, next {next_firing}",
    )
