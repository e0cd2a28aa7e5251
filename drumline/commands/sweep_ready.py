"""`drumline sweep ready`: what a sweep's handler waits for is there; start it in its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.commands import groups, server, terminal
from drumline.commands.base import Change, Context
from drumline.commands.sweep_show import Key, said, shown
from drumline.domain.sweep import LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepReady(Change, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.ready"

    sweep: Key

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = server.sweeps.get(tx, context.settings.region, self.sweep)
        row = server.sweeps.locked(tx, row.id)
        return shown(tx, server.sweeps.ready(tx, row))


@groups.sweep.command("ready", epilog="drumline sweep ready june")
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
@terminal.changes
def ready(sweep: str, request_id: str | None) -> None:
    """Let a sweep start whose prepare hook returned Later()."""
    done = terminal.change("sweep.ready", {"sweep": sweep}, request_id)
    terminal.answer(done, said(done))
