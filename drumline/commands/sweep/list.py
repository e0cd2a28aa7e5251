"""`drumline sweep list`: the newest sweeps, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import PAGE_LIMIT, Id, Limit
from drumline.commands.sweep.show import described
from drumline.domain.sweeps.sweep import SweepState

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.list"

    state: SweepState | None = None
    before: Id | None = None
    limit: Limit = 50

    def answer(self, context: Context) -> dict[str, Any]:
        def look(tx: Tx) -> list[dict[str, Any]]:
            region = context.settings.region
            rows = store.sweeps.listed(
                tx, region, state=self.state, before=self.before, limit=self.limit
            )
            parts = store.sweeps.parts_of(tx, [row.id for row in rows])
            return [described(row, parts[row.id]) for row in rows]

        found = context.db.read(look)
        more = len(found) == self.limit
        return {"sweeps": found, "next": found[-1]["id"] if more else None}


@groups.sweep.command(
    "list",
    epilog="""
        drumline sweep list
        drumline sweep list --state running
        drumline sweep list --before 100 --json
    """,
)
@click.option("--state", type=click.Choice([state.value for state in SweepState]))
@click.option("--before", type=groups.ID, metavar="ID", help="Only older ones than this sweep.")
@click.option("--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True)
def list_(**options: Any) -> None:
    """List sweeps, the newest first."""
    found = terminal.ask("sweep.list", options)
    rows = [
        (one["id"], one["name"], one["type"], one["state"], one["done"], one["total"],
         one["errors"], f"{one['speed']:,.0f}/s" if one["running"] else None, one["reason"])
        for one in found["sweeps"]
    ]  # fmt: skip
    columns = ("id", "name", "type", "state", "done", "total", "errors", "speed", "reason")
    terminal.table(found, columns, rows, nothing="There are no sweeps.")
    terminal.more(found["next"])
