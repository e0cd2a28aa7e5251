"""`drumline job disable`: a job fires no more; what has started goes on, the rest is taken back."""

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


class JobDisable(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.disable"

    job: Key
    version: Annotated[int, Meta(ge=1)] | None = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = store.jobs.get(tx, context.settings.region, self.job)
        store.jobs.switch(tx, row, self.version, store.jobs.DISABLED)
        return described(tx, store.jobs.get(tx, context.settings.region, row.id))


@groups.job.command("disable", epilog="drumline job disable report")
@click.argument("job", metavar="JOB", type=terminal.text(128))
@click.option("--version", type=click.IntRange(1), help="Only if it is still at this version.")
@terminal.changes
def disable(job: str, version: int | None, request_id: str | None) -> None:
    """Stop a job from firing. What runs goes on."""
    done = terminal.change("job.disable", {"job": job, "version": version}, request_id)
    terminal.answer(done, f"job {done['id']} {done['name']}: disabled")
