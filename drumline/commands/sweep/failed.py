"""`drumline sweep failed`: the indexes that failed, the lowest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output, paging
from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Limit, iso
from drumline.commands.sweep.show import Key
from drumline.domain.sweeps.definition import LARGEST_TOTAL, LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class FailedItem(Answer, frozen=True, kw_only=True):
    """An index whose item failed."""

    index: int
    at: Moment


class FailedItemPage(Answer, frozen=True, kw_only=True):
    """A page of failed items, the lowest index first."""

    failed: list[FailedItem]
    next: int | None
    """The `after` of the next page."""


class SweepFailed(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.failed"

    sweep: Key
    after: Annotated[int, Meta(ge=0)] | None = None
    """Only indexes above this one: the `next` of the previous page."""
    limit: Limit = 50
    """The size of a page."""

    def answer(self, context: Context) -> FailedItemPage:
        def read(tx: Tx) -> list[FailedItem]:
            row = store.sweeps.get(tx, context.settings.region, self.sweep)
            lines = store.sweep_log.failed(tx, row.id, self.after, self.limit)
            return [FailedItem(index=line.item, at=iso(line.created_at)) for line in lines]

        items = context.db.read(read)
        is_full = len(items) == self.limit
        return FailedItemPage(failed=items, next=items[-1].index if is_full else None)


@groups.sweep.command(
    "failed",
    epilog="""
        drumline sweep failed june
        drumline sweep failed june --after 4711 --limit 1000 --json
    """,
)
@click.argument("sweep", metavar="SWEEP", type=option_types.text(LONGEST_NAME))
@click.option("--after", type=click.IntRange(0, LARGEST_TOTAL), metavar="INDEX",
              help="Only indexes above this one.")  # fmt: skip
@paging.limit
def failed(sweep: str, **options: Any) -> None:
    """List the indexes that failed, the lowest first; `sweep log` shows the reasons."""
    page = gateway.query("sweep.failed", {"sweep": sweep, **options})
    rows = [(item["index"], item["at"]) for item in page["failed"]]
    output.print_table(page, ("index", "at"), rows, nothing="No item has failed.")
    if page["next"] is not None and not groups.wants_json():
        output.print_note(f"There may be more: --after {page['next']}")
