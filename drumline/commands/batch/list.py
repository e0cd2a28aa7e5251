"""`drumline batch list`: the newest batches, a page at a time."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import PAGE_LIMIT, Id, Limit
from drumline.commands.batch.show import described
from drumline.domain.states import FINISHED, BatchState


class BatchList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.list"

    status: BatchState | None = None
    before: Id | None = None
    limit: Limit = 50

    def answer(self, context: Context) -> dict[str, Any]:
        region = context.settings.region
        rows = context.db.read(
            lambda tx: store.batches.listed(tx, region, self.status, self.before, self.limit)
        )
        more = len(rows) == self.limit
        return {
            "batches": [described(row) for row in rows],
            "next": rows[-1].id if more else None,
        }


@groups.batch.command(
    "list",
    epilog="""
        drumline batch list
        drumline batch list --status running --limit 10
        drumline batch list --before 100 --json
    """,
)
@click.option("--status", type=click.Choice([state.value for state in BatchState]))
@click.option("--before", type=groups.ID, metavar="ID", help="Only older ones than this batch.")
@click.option("--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True)
def list_(status: str | None, before: int | None, limit: int) -> None:
    """List batches, the newest first."""
    found = terminal.ask("batch.list", {"status": status, "before": before, "limit": limit})
    rows = []
    for one in found["batches"]:
        counts = one["counts"]
        done = sum(n for state, n in counts.items() if state in FINISHED)
        failed = counts.get("fail", 0) + counts.get("rollback_fail", 0)
        rows.append(
            (one["id"], one["name"], one["batch_type"], one["status"], done, failed, one["total"],
             one["creator"], one["created_at"])
        )  # fmt: skip
    columns = ("id", "name", "type", "status", "done", "failed", "total", "creator", "created")
    terminal.table(found, columns, rows, nothing="There are no batches.")
    terminal.more(found["next"])
