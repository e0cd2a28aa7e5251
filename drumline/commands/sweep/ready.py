"""`drumline sweep ready`: what a sweep's handler waits for is there; start it in its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.sweep.show import Key, said, shown
from drumline.domain.sweeps.sweep import LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepReady(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.ready"

    sweep: Key

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = store.sweeps.get(tx, context.settings.region, self.sweep)
        row = store.sweeps.locked(tx, row.id)
        return shown(tx, store.sweeps.ready(tx, row))


@groups.sweep.command("ready", epilog="drumline sweep ready june")
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
@terminal.changes
def ready(sweep: str, request_id: str | None) -> None:
    """Let a sweep start whose prepare hook returned Later()."""
    done = terminal.change("sweep.ready", {"sweep": sweep}, request_id)
    terminal.answer(done, said(done))
