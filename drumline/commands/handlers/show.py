"""`drumline handlers show`: one handler, with the schema of its parameter."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Type
from drumline.commands.handlers.list import described
from drumline.errors import NotFound, WrongUse


class HandlersShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "handlers.show"

    type: Type
    target_type: Type | None = None

    def answer(self, context: Context) -> dict[str, Any]:
        region = context.settings.region
        specs = context.db.read(lambda tx: store.handlers.visible(tx, region))
        fitting = [
            spec
            for spec in specs
            if spec.type == self.type and self.target_type in (None, spec.target_type)
        ]
        if not fitting:
            where = f" on target type {self.target_type}" if self.target_type else ""
            raise NotFound(noun="handler for", id=self.type + where)
        if len(fitting) > 1:
            kinds = ", ".join(spec.target_type for spec in fitting)
            raise WrongUse(reason=f"{self.type} is served on several target types: {kinds}")
        return described(fitting[0])


@groups.handlers.command(
    "show",
    epilog="""
        drumline handlers show demo.sleep
        drumline handlers show cdc_job_stop --target-type cdc --json | jq .schema
    """,
)
@click.argument("type_", metavar="TYPE", type=terminal.TYPE)
@click.option("--target-type", type=terminal.TYPE, help="Needed if several serve the type.")
def show(type_: str, target_type: str | None) -> None:
    """Show a handler: what it takes, what it promises, where it comes from."""
    found = terminal.ask("handlers.show", {"type": type_, "target_type": target_type})
    terminal.record(found, found.items())
