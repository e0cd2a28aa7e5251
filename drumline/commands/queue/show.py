"""`drumline queue show`: the dispatcher's queue, its workers, and the types that are paused."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from drumline.cli import gateway, groups, output
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.commands.queue.answers import format_pauses
from drumline.domain.dispatch.status import QueueStatus


class QueueShow(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "queue.show"

    def answer(self, context: Context) -> QueueStatus:
        region = context.settings.region
        # Pauses are read from the database: the dispatcher learns of a new one a moment later.
        paused = context.db.read(lambda tx: store.pauses.current(tx, region))
        return msgspec.structs.replace(context.dispatcher.queue_status(), paused=tuple(paused))


@groups.queue.command(
    "show",
    epilog="""
        drumline queue show
        drumline queue show --json | jq .free_workers
    """,
)
def show() -> None:
    """Show the queue, the workers, and the types that are paused."""
    queue = gateway.query("queue.show", {})
    by_type = ", ".join(f"{n} {key.partition('/')[2]}" for key, n in queue["by_type"].items())
    output.print_record(
        queue,
        [
            ("queued", f"{queue['length']} of {queue['capacity']}"),
            ("by type", by_type or None),
            ("with workers", queue["assigned"]),
            ("workers", f"{queue['pool_size']}, {queue['free_workers']} free"),
            ("finished", queue["finished"]),
            ("paused", format_pauses(queue["paused"])),
        ],
    )
