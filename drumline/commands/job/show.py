"""`drumline job show`: a job, its next firings and its last run."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.commands.job.answers import JobDetail, describe_job
from drumline.commands.job.fields import Key

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class JobShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.show"

    job: Key

    def answer(self, context: Context) -> JobDetail:
        def read(tx: Tx) -> JobDetail:
            return describe_job(tx, store.jobs.get(tx, context.settings.region, self.job))

        return context.db.read(read)


@groups.job.command(
    "show",
    epilog="""
        drumline job show report
        drumline job show 12 --json | jq .next_firings
    """,
)
@click.argument("job", metavar="JOB", type=option_types.text(128))
def show(job: str) -> None:
    """Show a job, by its id or its name."""
    answer = gateway.query("job.show", {"job": job})
    last = answer["last_run"]
    values = answer | {
        "next_firings": "\n".join(answer["next_firings"]) or None,
        "last_run": last and f"{last['id']}: {last['status']} at {last['scheduled_at']}",
    }
    hidden = {"id", "next_firing", "deleted"}
    pairs = [("job", answer["id"]), *((k, v) for k, v in values.items() if k not in hidden)]
    output.print_record(answer, pairs)
