"""`drumline sweep start`: start a sweep, or continue one that was stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

from drumline.cli import gateway, groups, option_types
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.sweep.answers import SweepSummary, read_summary
from drumline.commands.sweep.show import Key
from drumline.commands.sweep.watch import answer_or_follow
from drumline.domain.sweeps.definition import LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class SweepStart(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.start"

    sweep: Key

    def change(self, tx: Tx, context: Context) -> SweepSummary:
        region = context.settings.region
        row = store.sweeps.get(tx, region, self.sweep)
        row = store.sweeps.lock(tx, row.id)
        spec = store.handlers.find_sweep(tx, region, row.type)
        return read_summary(tx, store.sweeps.start(tx, row, spec))


@groups.sweep.command(
    "start",
    epilog="""
        drumline sweep start june
        drumline sweep start june --watch
    """,
)
@click.argument("sweep", metavar="SWEEP", type=option_types.text(LONGEST_NAME))
@click.option("--watch", is_flag=True, help="Follow the sweep until it ends.")
@option_types.request_id
def start(sweep: str, watch: bool, request_id: str | None) -> int:
    """Start a sweep, or continue one that was stopped."""
    answer = gateway.change("sweep.start", {"sweep": sweep}, request_id)
    return answer_or_follow(answer, watch)
