"""`drumline sweep update`: another rate, parallelism or error budget, also while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import UNSET, Meta, UnsetType

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.sweep.create import ERRORS, PARALLEL, RATE, check_threads, extra_json
from drumline.commands.sweep.show import Key, said, shown
from drumline.domain.sweeps.sweep import (
    ACTIVE,
    ENDED,
    LONGEST_NAME,
    check_errors,
    check_parallel,
    check_rate,
)
from drumline.errors import Conflict, WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx

FIELDS = ("rate", "parallel", "errors", "extra")


class SweepUpdate(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.update"

    sweep: Key
    rate: float | UnsetType | None = UNSET
    parallel: int | UnsetType | None = UNSET
    errors: int | UnsetType | None = UNSET
    extra: Any = UNSET
    version: Annotated[int, Meta(ge=1)] | None = None
    """The version that was read: if the sweep has another by now, nothing is changed."""
    unset: tuple[str, ...] = ()
    """Fields that are to have no value any more."""

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        region = context.settings.region
        row = store.sweeps.locked(tx, store.sweeps.get(tx, region, self.sweep).id)
        said = {name: value for name in FIELDS if (value := getattr(self, name)) is not UNSET}
        for name in self.unset:
            if name not in FIELDS:
                raise WrongUse(
                    field="unset", reason=f"{name!r} cannot be unset; these can: {FIELDS}"
                )
            said.setdefault(name, None)
        if not said:
            raise WrongUse(reason=f"there is nothing to change: name one of {', '.join(FIELDS)}")
        if row.state in ENDED:
            raise Conflict(reason=f"The sweep is {row.state}: there is nothing to change any more.")
        if "extra" in said:
            if row.state in ACTIVE:
                raise Conflict(
                    reason=f"The sweep is {row.state}: its extra data is its handler's until it "
                    "is stopped."
                )
            said["extra"] = extra_json(said["extra"])
        check_rate(said.get("rate"))
        check_errors(said.get("errors"))
        if "parallel" in said:
            check_parallel(said["parallel"], row.partitions)
            spec = store.handlers.find_sweep(tx, region, row.type)
            check_threads(spec, said["parallel"], row.partitions)
        return shown(tx, store.sweeps.change(tx, row, self.version, said))


@groups.sweep.command(
    "update",
    epilog="""
        drumline sweep update june --rate 50
        drumline sweep update june --parallel 8 --errors 1000
        drumline sweep update june --unset rate
    """,
)
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
@click.option("--rate", type=RATE, metavar="N", help="Items a second, of the whole sweep.")
@click.option("--parallel", type=PARALLEL, metavar="N", help="Items at a time.")
@click.option("--errors", type=ERRORS, metavar="N", help="Stop at so many errors since a start.")
@click.option("--extra", type=terminal.document, metavar="JSON", help="Data for the handler.")
@click.option("--unset", multiple=True, type=click.Choice(FIELDS), help="Take a field back.")
@click.option("--version", type=click.IntRange(1), help="Only if it is still at this version.")
@terminal.changes
def update(sweep: str, request_id: str | None, **options: Any) -> None:
    """Change a sweep; one that runs follows within two seconds."""
    done = terminal.change("sweep.update", {"sweep": sweep, **options}, request_id)
    terminal.answer(done, said(done))
