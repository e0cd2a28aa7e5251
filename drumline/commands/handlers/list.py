"""`drumline handlers list`: what the workers of this region have announced that they can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand

if TYPE_CHECKING:
    from drumline.domain.policy import HandlerSpec


class HandlersList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "handlers.list"

    def answer(self, context: Context) -> dict[str, Any]:
        region = context.settings.region
        specs = context.db.read(lambda tx: store.handlers.visible(tx, region))
        return {"handlers": [described(spec) for spec in specs]}


def described(spec: HandlerSpec) -> dict[str, Any]:
    """A handler as every door shows it. Of a sweep's, what goes for its items."""
    items = spec.sweep
    return {
        "target_type": spec.target_type,
        "type": spec.type,
        "timeout": items.item_timeout if items else spec.timeout,
        "retries": items.item_retry.retries if items else spec.retry.retries,
        "async": items.is_async if items else spec.is_async,
        "captures": spec.captures,
        "rolls_back": spec.rolls_back,
        "on_death": spec.on_death,
        "origin": spec.origin,
        "doc": spec.doc,
        "schema": spec.schema,
    }


@groups.handlers.command(
    "list",
    epilog="""
        drumline handlers list
        drumline handlers list --json | jq -r '.handlers[].type'
    """,
)
def list_() -> None:
    """List what the workers can run."""
    found = terminal.ask("handlers.list", {})
    rows = [
        (one["type"], one["target_type"], one["timeout"], one["retries"], one["async"],
         one["rolls_back"], one["doc"])
        for one in found["handlers"]
    ]  # fmt: skip
    columns = ("type", "target type", "timeout", "retries", "async", "rolls back", "does")
    terminal.table(found, columns, rows, nothing="No worker has announced anything yet.")
