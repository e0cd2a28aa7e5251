"""`drumline sweep list`: sweeps by state, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import gateway, groups, output, paging
from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.command_layer.paging import PageQuery
from drumline.commands.sweep.answers import SweepPage, SweepSummary, summarise_sweep
from drumline.domain.sweeps.states import SweepState

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepList(PageQuery, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.list"

    state: SweepState | None = None
    """Only sweeps in this state."""

    def answer(self, context: Context) -> SweepPage:
        def read(tx: Tx) -> list[SweepSummary]:
            region = context.settings.region
            rows = store.sweeps.listed(
                tx, region, state=self.state, before=self.before, limit=self.limit
            )
            partitions = store.sweeps.read_partitions(tx, [row.id for row in rows])
            return [summarise_sweep(row, partitions[row.id]) for row in rows]

        sweeps = context.db.read(read)
        return SweepPage(sweeps=sweeps, next=self.next_page(sweeps))


@groups.sweep.command(
    "list",
    epilog="""
        drumline sweep list
        drumline sweep list --state running
        drumline sweep list --before 100 --json
    """,
)
@click.option("--state", type=click.Choice([state.value for state in SweepState]),
              help="Only sweeps in this state.")  # fmt: skip
@paging.options("sweeps")
def list_(**options: Any) -> None:
    """List sweeps, the newest first."""
    page = gateway.query("sweep.list", options)
    rows = [
        (sweep["id"], sweep["name"], sweep["type"], sweep["state"], sweep["done"], sweep["total"],
         sweep["errors"], f"{sweep['speed']:,.0f}/s" if sweep["running"] else None, sweep["reason"])
        for sweep in page["sweeps"]
    ]  # fmt: skip
    columns = ("id", "name", "type", "state", "done", "total", "errors", "speed", "reason")
    output.print_table(page, columns, rows, nothing="There are no sweeps.")
    output.print_next_page(page["next"])
