"""`drumline handlers list`: the handlers that the workers of this region have announced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from drumline.cli import gateway, groups, output
from drumline.command_layer import store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import Context, QueryCommand

if TYPE_CHECKING:
    from drumline.domain.policy import HandlerSpec


class HandlerDetail(Answer, frozen=True, kw_only=True):
    """A handler. Of a sweep handler: what applies to each of its items."""

    target_type: str
    type: str
    timeout: float
    """Seconds."""
    retries: int
    is_async: bool = msgspec.field(name="async")
    captures: bool
    """Whether the handler can tell what it would change."""
    rolls_back: bool
    on_death: str
    """What happens to a task whose worker dies."""
    origin: str
    """Where the handler is defined."""
    doc: str
    schema: dict[str, Any] | None
    """The JSON schema of the parameter."""


class HandlerListing(Answer, frozen=True, kw_only=True):
    """The handlers of the region."""

    handlers: list[HandlerDetail]


class HandlersList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "handlers.list"

    def answer(self, context: Context) -> HandlerListing:
        region = context.settings.region
        specs = context.db.read(lambda tx: store.handlers.visible(tx, region))
        return HandlerListing(handlers=[describe_handler(spec) for spec in specs])


def describe_handler(spec: HandlerSpec) -> HandlerDetail:
    items = spec.sweep
    return HandlerDetail(
        target_type=spec.target_type,
        type=spec.type,
        timeout=items.item_timeout if items else spec.timeout,
        retries=items.item_retry.retries if items else spec.retry.retries,
        is_async=items.is_async if items else spec.is_async,
        captures=spec.captures,
        rolls_back=spec.rolls_back,
        on_death=spec.on_death,
        origin=spec.origin,
        doc=spec.doc,
        schema=spec.schema,
    )


@groups.handlers.command(
    "list",
    epilog="""
        drumline handlers list
        drumline handlers list --json | jq -r '.handlers[].type'
    """,
)
def list_() -> None:
    """List the handlers that the workers can run."""
    listing = gateway.query("handlers.list", {})
    rows = [
        (handler["type"], handler["target_type"], handler["timeout"], handler["retries"],
         handler["async"], handler["rolls_back"], handler["doc"])
        for handler in listing["handlers"]
    ]  # fmt: skip
    columns = ("type", "target type", "timeout", "retries", "async", "rolls back", "description")
    output.print_table(listing, columns, rows, nothing="No worker has announced a handler yet.")
