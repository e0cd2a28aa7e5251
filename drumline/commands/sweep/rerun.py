"""`drumline sweep rerun`: run a range of a sweep's indexes again, as a new sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
import msgspec
from msgspec import Meta

from drumline.cli import gateway, groups, option_types
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.sweep.answers import SweepSummary, read_summary
from drumline.commands.sweep.show import Key
from drumline.commands.sweep.watch import answer_or_follow
from drumline.domain.sweeps.definition import (
    LARGEST_PARTITIONS,
    LARGEST_TOTAL,
    LONGEST_NAME,
    check_name,
    check_parallel,
)
from drumline.domain.sweeps.partitioning import split_into_partitions
from drumline.errors import Conflict, WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx

Index = Annotated[int, Meta(ge=0, le=LARGEST_TOTAL)]
COPIED = (
    "type", "items", "item_list", "identity", "total", "rate", "parallel", "errors", "extra",
)  # fmt: skip


class SweepRerun(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.rerun"

    sweep: Key
    first: Index | None = None
    """The first index; by default, the sweep's own."""
    end: Index | None = None
    """The index after the last one; by default, the sweep's own."""
    partitions: Annotated[int, Meta(ge=1, le=LARGEST_PARTITIONS)] | None = None
    """By default, as many as the sweep has."""
    sweep_name: str | None = msgspec.field(default=None, name="name")
    """The name of the new sweep; by default, made from the sweep's name."""
    start: bool = True

    def change(self, tx: Tx, context: Context) -> SweepSummary:
        region = context.settings.region
        row = store.sweeps.get(tx, region, self.sweep)
        if row.end_index is None:
            raise Conflict(
                reason=f"Sweep {row.id} has not been started: its items have not been counted."
            )
        first = row.first_index if self.first is None else self.first
        end = row.end_index if self.end is None else self.end
        if not 0 <= first < end <= (row.total or row.end_index):
            raise WrongUse(
                reason=f"first and end: {first:,} to {end:,} is not a range within "
                f"0 to {row.total or row.end_index:,}."
            )
        partitions = self.partitions or min(row.partitions, end - first)
        split_into_partitions(first, end, partitions)
        check_parallel(row.parallel, partitions)
        spec = store.handlers.find_sweep(tx, region, row.type)
        name = self.sweep_name or store.sweeps.free_name(tx, region, f"{row.name}-rerun")
        check_name(name)
        values = {field: getattr(row, field) for field in COPIED} | {
            "name": name,
            "first_index": first,
            "end_index": end,
            "partitions": partitions,
            "rerun_of": row.id,
            "creator": context.actor or None,
        }
        new = store.sweeps.get(tx, region, store.sweeps.create(tx, region, values, spec))
        if self.start and new.checked:
            new = store.sweeps.start(tx, new, spec)
        return read_summary(tx, new)


@groups.sweep.command(
    "rerun",
    epilog="""
        drumline sweep rerun june --first 1000 --end 2000
        drumline sweep rerun june --first 1000000 --partitions 4 --name june-again --watch
    """,
)
@click.argument("sweep", metavar="SWEEP", type=option_types.text(LONGEST_NAME))
@click.option(
    "--first",
    type=click.IntRange(0, LARGEST_TOTAL),
    metavar="INDEX",
    help="First index; by default, the sweep's own.",
)
@click.option(
    "--end",
    type=click.IntRange(0, LARGEST_TOTAL),
    metavar="INDEX",
    help="Index after the last one; by default, the sweep's own.",
)
@click.option("--partitions", type=click.IntRange(1, LARGEST_PARTITIONS), metavar="N",
              help="Divide the items among N workers; by default, as the sweep does.")  # fmt: skip
@click.option("--name", type=option_types.text(LONGEST_NAME), help="Name of the new sweep.")
@click.option("--start/--no-start", default=True, show_default=True,
              help="Start the new sweep at once.")  # fmt: skip
@click.option("--watch", is_flag=True, help="Follow the new sweep until it ends.")
@option_types.request_id
def rerun(sweep: str, watch: bool, request_id: str | None, **options: Any) -> int:
    """Run a range of a sweep's indexes again, as a new sweep."""
    answer = gateway.change("sweep.rerun", {"sweep": sweep, **options}, request_id)
    return answer_or_follow(answer, watch)
