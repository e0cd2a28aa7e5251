"""`drumline batch show`: a batch and the number of its tasks in each state."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from drumline.cli import gateway, groups, output
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Id
from drumline.commands.batch.answers import BatchDetail, describe_batch


class BatchShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.show"

    batch_id: Id

    def answer(self, context: Context) -> BatchDetail:
        region = context.settings.region
        row = context.db.read(lambda tx: store.batches.get(tx, self.batch_id, region))
        return describe_batch(row)


@groups.batch.command(
    "show",
    epilog="""
        drumline batch show 12
        drumline batch show 12 --json | jq .counts
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
def show(batch_id: int) -> None:
    """Show a batch and the number of its tasks in each state."""
    batch = gateway.query("batch.show", {"batch_id": batch_id})
    hidden = {"id", "counts", "finished", "phase", "operation", "version", "total"}
    output.print_record(
        batch,
        [
            ("batch", batch["id"]),
            ("tasks", format_counts(batch)),
            *((name, value) for name, value in batch.items() if name not in hidden),
            ("under way", batch["operation"]),
        ],
    )


def format_counts(batch: dict[str, Any]) -> str:
    """`12: 10 success, 2 fail`."""
    counts = ", ".join(f"{n} {state}" for state, n in batch["counts"].items())
    return f"{batch['total']}: {counts}" if counts else str(batch["total"])
