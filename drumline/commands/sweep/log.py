"""`drumline sweep log`: what a sweep's items had to say, and why those that failed did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import PAGE_LIMIT, Id, Limit, iso
from drumline.commands.sweep.show import Key
from drumline.domain.sweeps.sweep import LARGEST_TOTAL, LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepLog(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.log"

    sweep: Key
    index: Annotated[int, Meta(ge=0)] | None = None
    before: Id | None = None
    limit: Limit = 50

    def answer(self, context: Context) -> dict[str, Any]:
        def look(tx: Tx) -> list[dict[str, Any]]:
            row = store.sweeps.get(tx, context.settings.region, self.sweep)
            lines = store.sweep_log.lines(tx, row.id, self.index, self.before, self.limit)
            return [
                {"id": line.id, "index": line.item, "message": line.message,
                 "at": iso(line.created_at)}
                for line in lines
            ]  # fmt: skip

        found = context.db.read(look)
        more = len(found) == self.limit
        return {"lines": found, "next": found[-1]["id"] if more else None}


@groups.sweep.command(
    "log",
    epilog="""
        drumline sweep log june
        drumline sweep log june --index 4711
        drumline sweep log june --limit 1000 --json
    """,
)
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
@click.option("--index", type=click.IntRange(0, LARGEST_TOTAL), help="Only of this item.")
@click.option("--before", type=groups.ID, metavar="ID", help="Only older lines than this one.")
@click.option("--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True)
def log(sweep: str, **options: Any) -> None:
    """Show a sweep's data log, the newest lines first."""
    found = terminal.ask("sweep.log", {"sweep": sweep, **options})
    rows = [(line["id"], line["at"], line["index"], line["message"]) for line in found["lines"]]
    columns = ("id", "at", "index", "message")
    terminal.table(found, columns, rows, nothing="There are no lines.")
    terminal.more(found["next"])
