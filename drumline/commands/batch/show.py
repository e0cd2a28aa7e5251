"""`drumline batch show`: one batch, with how many of its tasks are in each state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Id, from_json, iso
from drumline.domain.states import BATCH_FINISHED, FINISHED

if TYPE_CHECKING:
    from sqlalchemy import Row


class BatchShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.show"

    batch_id: Id

    def answer(self, context: Context) -> dict[str, Any]:
        region = context.settings.region
        return described(context.db.read(lambda tx: store.batches.get(tx, self.batch_id, region)))


def described(row: Row[Any]) -> dict[str, Any]:
    """A batch as every door shows it."""
    counts = {state: n for state, n in store.batches.counts(row).items() if n}
    status = store.batches.status_now(row)
    still = row.spread is not None or bool(counts.keys() - FINISHED)
    return {
        "id": row.id,
        "name": row.name,
        "status": status,
        "finished": status in BATCH_FINISHED and not still,
        "total": row.total,
        "counts": counts,
        "batch_type": row.batch_type,
        "target_type": row.target_type,
        "creator": row.creator,
        "cmdb_service": row.cmdb_service,
        "env": row.env,
        "region": row.region,
        "az": row.az,
        "extra_info": from_json(row.extra_info),
        "phase": row.phase,
        "spread": row.spread,
        "version": row.version,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
    }


@groups.batch.command(
    "show",
    epilog="""
        drumline batch show 12
        drumline batch show 12 --json | jq .counts
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
def show(batch_id: int) -> None:
    """Show a batch and how many of its tasks are in each state."""
    found = terminal.ask("batch.show", {"batch_id": batch_id})
    hidden = {"id", "counts", "finished", "phase", "spread", "version", "total"}
    terminal.record(
        found,
        [
            ("batch", found["id"]),
            ("tasks", tally(found)),
            *((name, value) for name, value in found.items() if name not in hidden),
            ("under way", found["spread"]),
        ],
    )


def tally(found: dict[str, Any]) -> str:
    """`12: 10 success, 2 fail`."""
    counts = ", ".join(f"{n} {state}" for state, n in found["counts"].items())
    return f"{found['total']}: {counts}" if counts else str(found["total"])
