"""`drumline sweep start`: start a sweep, or go on with one that was stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.sweep.show import Key, said, shown
from drumline.commands.sweep.watch import follow_to_end
from drumline.domain.sweeps.sweep import LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepStart(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.start"

    sweep: Key

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        region = context.settings.region
        row = store.sweeps.get(tx, region, self.sweep)
        row = store.sweeps.locked(tx, row.id)
        spec = store.handlers.find_sweep(tx, region, row.type)
        return shown(tx, store.sweeps.start(tx, row, spec))


@groups.sweep.command(
    "start",
    epilog="""
        drumline sweep start june
        drumline sweep start june --watch
    """,
)
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
@click.option("--watch", is_flag=True, help="Follow it to its end.")
@terminal.changes
def start(sweep: str, watch: bool, request_id: str | None) -> int:
    """Start a sweep; one that was stopped goes on where it was."""
    done = terminal.change("sweep.start", {"sweep": sweep}, request_id)
    if not watch:
        terminal.answer(done, said(done))
        return 0
    terminal.say(said(done))
    return follow_to_end(sweep)
