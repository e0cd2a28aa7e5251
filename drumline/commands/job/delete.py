"""`drumline job delete`: softly: its name is free, its runs can still be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.job.fields import Key

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class JobDelete(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.delete"

    job: Key
    version: Annotated[int, Meta(ge=1)] | None = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = store.jobs.get(tx, context.settings.region, self.job)
        store.jobs.remove(tx, row, self.version)
        return {"id": row.id, "name": row.name, "deleted": True}


@groups.job.command("delete", epilog="drumline job delete report")
@click.argument("job", metavar="JOB", type=terminal.text(128))
@click.option("--version", type=click.IntRange(1), help="Only if it is still at this version.")
@terminal.changes
def delete(job: str, version: int | None, request_id: str | None) -> None:
    """Delete a job. What runs goes on."""
    done = terminal.change("job.delete", {"job": job, "version": version}, request_id)
    terminal.answer(done, f"job {done['id']} {done['name']}: deleted")
