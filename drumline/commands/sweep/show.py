"""`drumline sweep show`: a sweep, its progress and its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.commands.sweep.answers import SweepDetail, describe_sweep
from drumline.domain.sweeps.definition import LONGEST_NAME

if TYPE_CHECKING:
    from drumline.store.tx import Tx

Key = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)] | Annotated[int, Meta(ge=1)]
"""A sweep's name or its id."""


class SweepShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.show"

    sweep: Key

    def answer(self, context: Context) -> SweepDetail:
        def read(tx: Tx) -> SweepDetail:
            row = store.sweeps.get(tx, context.settings.region, self.sweep)
            return describe_sweep(row, store.sweeps.read_partitions(tx, [row.id])[row.id])

        return context.db.read(read)


def format_sweep(sweep: dict[str, Any]) -> str:
    """A sweep in one line."""
    of_total = "" if sweep["total"] is None else f" of {sweep['total']:,}"
    line = f"sweep {sweep['id']} {sweep['name']}: {output.coloured(sweep['state'])}"
    line += f", {sweep['done']:,}{of_total} done, {output.plural(sweep['errors'], 'error')}"
    return f"{line}: {sweep['reason']}" if sweep["reason"] else line


@groups.sweep.command(
    "show",
    epilog="""
        drumline sweep show june
        drumline sweep show 12 --json | jq .done
    """,
)
@click.argument("sweep", metavar="SWEEP", type=option_types.text(LONGEST_NAME))
def show(sweep: str) -> None:
    """Show a sweep, by its id or its name."""
    answer = gateway.query("sweep.show", {"sweep": sweep})
    partitions = [
        f"{p['number']}: {p['start']:,} of {p['first']:,} to {p['end']:,}"
        + (f", {p['speed']:,.0f}/s in task {p['task_id']}" if p["running"] else "")
        for p in answer["parts"]
    ]
    hidden = {"id", "parts", "finished", "hook_task_id"}
    pairs = [("sweep", answer["id"]), *((k, v) for k, v in answer.items() if k not in hidden)]
    output.print_record(answer, [*pairs, ("parts", "\n".join(partitions) or None)])
