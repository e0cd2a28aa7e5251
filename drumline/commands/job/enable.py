"""`drumline job enable`: let a job fire, from now on; nothing is caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.job.fields import Key
from drumline.commands.job.show import described

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class JobEnable(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.enable"

    job: Key
    version: Annotated[int, Meta(ge=1)] | None = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = store.jobs.get(tx, context.settings.region, self.job)
        store.jobs.switch(tx, row, self.version, store.jobs.ENABLED)
        return described(tx, store.jobs.get(tx, context.settings.region, row.id))


@groups.job.command("enable", epilog="drumline job enable report")
@click.argument("job", metavar="JOB", type=terminal.text(128))
@click.option("--version", type=click.IntRange(1), help="Only if it is still at this version.")
@terminal.changes
def enable(job: str, version: int | None, request_id: str | None) -> None:
    """Let a job fire from now on."""
    done = terminal.change("job.enable", {"job": job, "version": version}, request_id)
    following = done["next_firing"] or "after its runs"
    terminal.answer(done, f"job {done['id']} {done['name']}: enabled, next {following}")
