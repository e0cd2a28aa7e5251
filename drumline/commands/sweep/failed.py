"""`drumline sweep failed`: the indexes that failed, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import PAGE_LIMIT, Limit, iso
from drumline.commands.sweep.show import Key
from drumline.domain.sweeps.sweep import LARGEST_TOTAL, LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepFailed(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.failed"

    sweep: Key
    after: Annotated[int, Meta(ge=0)] | None = None
    """Only indexes above this one."""
    limit: Limit = 50

    def answer(self, context: Context) -> dict[str, Any]:
        def look(tx: Tx) -> list[dict[str, Any]]:
            row = store.sweeps.get(tx, context.settings.region, self.sweep)
            found = store.sweep_log.failed(tx, row.id, self.after, self.limit)
            return [{"index": one.item, "at": iso(one.created_at)} for one in found]

        found = context.db.read(look)
        more = len(found) == self.limit
        return {"failed": found, "next": found[-1]["index"] if more else None}


@groups.sweep.command(
    "failed",
    epilog="""
        drumline sweep failed june
        drumline sweep failed june --after 4711 --limit 1000 --json
    """,
)
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
@click.option("--after", type=click.IntRange(0, LARGEST_TOTAL), help="Only above this index.")
@click.option("--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True)
def failed(sweep: str, **options: Any) -> None:
    """List the indexes that failed, the lowest first; `sweep log` says why."""
    found = terminal.ask("sweep.failed", {"sweep": sweep, **options})
    rows = [(one["index"], one["at"]) for one in found["failed"]]
    terminal.table(found, ("index", "at"), rows, nothing="No item has failed.")
    if found["next"] is not None and not groups.wants_json():
        terminal.say(f"There may be more: --after {found['next']}")
