"""`drumline sweep ready`: start a sweep whose prepare hook returned Later()."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.sweep.answers import SweepSummary, read_summary
from drumline.commands.sweep.show import Key, format_sweep
from drumline.domain.sweeps.definition import LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepReady(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.ready"

    sweep: Key

    def change(self, tx: Tx, context: Context) -> SweepSummary:
        row = store.sweeps.get(tx, context.settings.region, self.sweep)
        row = store.sweeps.lock(tx, row.id)
        return read_summary(tx, store.sweeps.start_prepared(tx, row))


@groups.sweep.command("ready", epilog="drumline sweep ready june")
@click.argument("sweep", metavar="SWEEP", type=option_types.text(LONGEST_NAME))
@option_types.request_id
def ready(sweep: str, request_id: str | None) -> None:
    """Start a sweep whose prepare hook returned Later()."""
    answer = gateway.change("sweep.ready", {"sweep": sweep}, request_id)
    output.print_result(answer, format_sweep(answer))
