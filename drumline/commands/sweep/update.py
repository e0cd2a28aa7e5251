"""`drumline sweep update`: change the rate, parallelism or error limit, also of a running sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import UNSET, Meta, UnsetType

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.sweep.answers import SweepSummary, read_summary
from drumline.commands.sweep.create import ERRORS, PARALLEL, RATE, check_threads, extra_json
from drumline.commands.sweep.show import Key, format_sweep
from drumline.domain.sweeps.definition import LONGEST_NAME, check_errors, check_parallel, check_rate
from drumline.domain.sweeps.states import ACTIVE, ENDED
from drumline.errors import Conflict, WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx

FIELDS = ("rate", "parallel", "errors", "extra")


class SweepUpdate(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.update"

    sweep: Key
    rate: float | UnsetType | None = UNSET
    """Maximum items per second, over all partitions."""
    parallel: int | UnsetType | None = UNSET
    """Maximum items in parallel, over all partitions."""
    errors: int | UnsetType | None = UNSET
    """The sweep stops when this many items have failed since its last start."""
    extra: Any = UNSET
    version: Annotated[int, Meta(ge=1)] | None = None
    """The version that was read; if the sweep has another one, nothing is changed."""
    unset: tuple[str, ...] = ()
    """Fields to clear."""

    def change(self, tx: Tx, context: Context) -> SweepSummary:
        region = context.settings.region
        row = store.sweeps.lock(tx, store.sweeps.get(tx, region, self.sweep).id)
        given = {name: value for name in FIELDS if (value := getattr(self, name)) is not UNSET}
        for name in self.unset:
            if name not in FIELDS:
                raise WrongUse(
                    field="unset", reason=f"{name!r} cannot be unset; these can: {FIELDS}"
                )
            given.setdefault(name, None)
        if not given:
            raise WrongUse(reason=f"there is nothing to change: name one of {', '.join(FIELDS)}")
        if row.state in ENDED:
            raise Conflict(reason=f"The sweep is {row.state}: it can no longer be changed.")
        if "extra" in given:
            if row.state in ACTIVE:
                raise Conflict(
                    reason=f"The sweep is {row.state}: its extra data can be changed only after "
                    "it has stopped."
                )
            given["extra"] = extra_json(given["extra"])
        check_rate(given.get("rate"))
        check_errors(given.get("errors"))
        if "parallel" in given:
            check_parallel(given["parallel"], row.partitions)
            spec = store.handlers.find_sweep(tx, region, row.type)
            check_threads(spec, given["parallel"], row.partitions)
        return read_summary(tx, store.sweeps.change(tx, row, self.version, given))


@groups.sweep.command(
    "update",
    epilog="""
        drumline sweep update june --rate 50
        drumline sweep update june --parallel 8 --errors 1000
        drumline sweep update june --unset rate
    """,
)
@click.argument("sweep", metavar="SWEEP", type=option_types.text(LONGEST_NAME))
@click.option(
    "--rate", type=RATE, metavar="N", help="Maximum items per second, over all partitions."
)
@click.option(
    "--parallel", type=PARALLEL, metavar="N", help="Maximum items in parallel, over all partitions."
)
@click.option(
    "--errors", type=ERRORS, metavar="N", help="Stop when N items have failed since the last start."
)
@click.option(
    "--extra", type=option_types.json_value, metavar="JSON", help="Any data for the handler."
)
@click.option(
    "--unset", multiple=True, type=click.Choice(FIELDS), help="Clear a field; may be repeated."
)
@click.option("--version", type=click.IntRange(1), metavar="N",
              help="Only if the sweep is still at this version.")  # fmt: skip
@option_types.request_id
def update(sweep: str, request_id: str | None, **options: Any) -> None:
    """Change a sweep. A running sweep applies the change within 2 seconds."""
    answer = gateway.change("sweep.update", {"sweep": sweep, **options}, request_id)
    output.print_result(answer, format_sweep(answer))
