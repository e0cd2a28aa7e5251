"""`drumline sweep log`: the messages of a sweep's items, and the errors of those that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output, paging
from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import Context
from drumline.command_layer.fields import iso
from drumline.command_layer.paging import PageQuery
from drumline.commands.sweep.show import Key
from drumline.domain.sweeps.definition import LARGEST_TOTAL, LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepLogLine(Answer, frozen=True, kw_only=True):
    """A message or an error of an item."""

    id: int
    index: int
    message: str
    at: Moment


class SweepLogPage(Answer, frozen=True, kw_only=True):
    """A page of a sweep's log, the newest lines first."""

    lines: list[SweepLogLine]
    next: int | None
    """The `before` of the next page."""


class SweepLog(PageQuery, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.log"

    sweep: Key
    index: Annotated[int, Meta(ge=0)] | None = None
    """Only lines of the item with this index."""

    def answer(self, context: Context) -> SweepLogPage:
        def read(tx: Tx) -> list[SweepLogLine]:
            row = store.sweeps.get(tx, context.settings.region, self.sweep)
            lines = store.sweep_log.lines(tx, row.id, self.index, self.before, self.limit)
            return [
                SweepLogLine(
                    id=line.id, index=line.item, message=line.message, at=iso(line.created_at)
                )
                for line in lines
            ]

        lines = context.db.read(read)
        return SweepLogPage(lines=lines, next=self.next_page(lines))


@groups.sweep.command(
    "log",
    epilog="""
        drumline sweep log june
        drumline sweep log june --index 4711
        drumline sweep log june --limit 1000 --json
    """,
)
@click.argument("sweep", metavar="SWEEP", type=option_types.text(LONGEST_NAME))
@click.option("--index", type=click.IntRange(0, LARGEST_TOTAL), metavar="INDEX",
              help="Only lines of the item with this index.")  # fmt: skip
@paging.options("lines")
def log(sweep: str, **options: Any) -> None:
    """Show the log of a sweep's items, the newest lines first."""
    page = gateway.query("sweep.log", {"sweep": sweep, **options})
    rows = [(line["id"], line["at"], line["index"], line["message"]) for line in page["lines"]]
    columns = ("id", "at", "index", "message")
    output.print_table(page, columns, rows, nothing="There are no lines.")
    output.print_next_page(page["next"])
