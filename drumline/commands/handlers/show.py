"""`drumline handlers show`: a handler and the schema of its parameter."""

from __future__ import annotations

from typing import ClassVar

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Type
from drumline.commands.handlers.list import HandlerDetail, describe_handler
from drumline.errors import NotFound, WrongUse


class HandlersShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "handlers.show"

    type: Type
    target_type: Type | None = None
    """Required if handlers of several target types serve the type."""

    def answer(self, context: Context) -> HandlerDetail:
        region = context.settings.region
        specs = context.db.read(lambda tx: store.handlers.visible(tx, region))
        matching = [
            spec
            for spec in specs
            if spec.type == self.type and self.target_type in (None, spec.target_type)
        ]
        if not matching:
            where = f" on target type {self.target_type}" if self.target_type else ""
            raise NotFound(noun="handler for", id=self.type + where)
        if len(matching) > 1:
            kinds = ", ".join(spec.target_type for spec in matching)
            raise WrongUse(reason=f"{self.type} is served on several target types: {kinds}")
        return describe_handler(matching[0])


@groups.handlers.command(
    "show",
    epilog="""
        drumline handlers show demo.sleep
        drumline handlers show cdc_job_stop --target-type cdc --json | jq .schema
    """,
)
@click.argument("type_", metavar="TYPE", type=option_types.TYPE)
@click.option(
    "--target-type",
    type=option_types.TYPE,
    help="Required if several target types have a handler for TYPE.",
)
def show(type_: str, target_type: str | None) -> None:
    """Show a handler: its limits, its parameter and its origin."""
    handler = gateway.query("handlers.show", {"type": type_, "target_type": target_type})
    output.print_record(handler, handler.items())
