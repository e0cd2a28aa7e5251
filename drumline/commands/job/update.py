"""`drumline job update`: change some of a job's fields; its unstarted firings are taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, job_options, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.commands.job import fields
from drumline.commands.job.fields import JobFields, Key
from drumline.commands.job.show import described
from drumline.errors import WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class JobUpdate(JobFields, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.update"

    job: Key
    version: Annotated[int, Meta(ge=1)] | None = None
    """The version that was read: if the job has another by now, nothing is changed."""
    unset: tuple[str, ...] = ()
    """Fields to be set back to what they are if nobody says anything."""

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = store.jobs.get(tx, context.settings.region, self.job)
        said = self.said()
        for name in self.unset:
            if name not in fields.DEFAULTS:
                known = ", ".join(fields.DEFAULTS)
                raise WrongUse(
                    field="unset", reason=f"{name!r} cannot be unset; these can: {known}"
                )
            said.setdefault(name, fields.DEFAULTS[name])
        if not said:
            raise WrongUse(reason="there is nothing to change: name at least one field")
        said = fields.keep_secrets(row, said)
        values = fields.changed(tx, context, row, said)
        store.jobs.change(tx, row, self.version, values)
        return described(tx, store.jobs.get(tx, context.settings.region, row.id))


@groups.job.command(
    "update",
    epilog="""
        drumline job update report --cron '0 7 * * mon-fri'
        drumline job update 12 --url http://service/v2 --version 3
        drumline job update report --unset ends_at
    """,
)
@click.argument("job", metavar="JOB", type=terminal.text(128))
@click.option("--name", type=terminal.text(128), help="Call it so from now on.")
@click.option("--version", type=click.IntRange(1), help="Only if it is still at this version.")
@click.option("--unset", multiple=True, metavar="FIELD", help="Set a field back to its default.")
@job_options.definition
@terminal.changes
def update(
    job: str,
    version: int | None,
    unset: tuple[str, ...],
    request_id: str | None,
    **options: Any,
) -> None:
    """Change a job. What is not named stays as it is."""
    fields = job_options.fields(options)
    arguments = fields | {"job": job, "version": version, "unset": unset}
    done = terminal.change("job.update", arguments, request_id)
    following = done["next_firing"] or "-"
    terminal.answer(done, f"job {done['id']} {done['name']}: version {done['version']}, "
                    f"next {following}")  # fmt: skip
