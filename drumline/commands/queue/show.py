"""`drumline queue show`: the dispatcher's queue, the pool of workers, and what is paused."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand


class QueueShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "queue.show"

    def answer(self, context: Context) -> dict[str, Any]:
        region = context.settings.region
        # What is paused is read where it is kept; the dispatcher learns of it a moment later.
        paused = context.db.read(lambda tx: store.pauses.current(tx, region))
        found: dict[str, Any] = msgspec.to_builtins(context.dispatcher.queue_status())
        return found | {"paused": paused}


@groups.queue.command(
    "show",
    epilog="""
        drumline queue show
        drumline queue show --json | jq .free_workers
    """,
)
def show() -> None:
    """Show the queue, the pool of workers, and what is paused."""
    found = terminal.ask("queue.show", {})
    by_type = ", ".join(f"{n} {key.partition('/')[2]}" for key, n in found["by_type"].items())
    terminal.record(
        found,
        [
            ("queued", f"{found['length']} of {found['capacity']}"),
            ("by type", by_type or None),
            ("with workers", found["assigned"]),
            ("workers", f"{found['pool_size']}, {found['free_workers']} free"),
            ("finished", found["finished"]),
            ("paused", pauses(found["paused"])),
        ],
    )


def pauses(types: list[str]) -> str:
    """What is paused, in words."""
    return ", ".join("everything" if one == "*" else one for one in types) or "nothing"
