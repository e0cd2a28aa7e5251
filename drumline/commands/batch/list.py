"""`drumline batch list`: batches by status, the newest first."""

from __future__ import annotations

from typing import ClassVar

import click

from drumline.cli import gateway, groups, output, paging
from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.command_layer.paging import PageQuery
from drumline.commands.batch.answers import BatchPage, describe_batch
from drumline.domain.states import FINISHED, BatchState


class BatchList(PageQuery, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.list"

    status: BatchState | None = None
    """Only batches with this status."""

    def answer(self, context: Context) -> BatchPage:
        region = context.settings.region
        rows = context.db.read(
            lambda tx: store.batches.listed(tx, region, self.status, self.before, self.limit)
        )
        return BatchPage(batches=[describe_batch(row) for row in rows], next=self.next_page(rows))


@groups.batch.command(
    "list",
    epilog="""
        drumline batch list
        drumline batch list --status running --limit 10
        drumline batch list --before 100 --json
    """,
)
@click.option("--status", type=click.Choice([state.value for state in BatchState]),
              help="Only batches with this status.")  # fmt: skip
@paging.options("batches")
def list_(status: str | None, before: int | None, limit: int) -> None:
    """List batches, the newest first."""
    page = gateway.query("batch.list", {"status": status, "before": before, "limit": limit})
    rows = []
    for batch in page["batches"]:
        counts = batch["counts"]
        done = sum(n for state, n in counts.items() if state in FINISHED)
        failed = counts.get("fail", 0) + counts.get("rollback_fail", 0)
        rows.append(
            (batch["id"], batch["name"], batch["batch_type"], batch["status"], done, failed,
             batch["total"], batch["creator"], batch["created_at"])
        )  # fmt: skip
    columns = ("id", "name", "type", "status", "done", "failed", "total", "creator", "created")
    output.print_table(page, columns, rows, nothing="There are no batches.")
    output.print_next_page(page["next"])
