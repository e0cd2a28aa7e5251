"""`drumline queue pause`: no task of a type, or no task at all, starts until it is resumed.

What runs goes on. A pause is kept in the database: no restart forgets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Type
from drumline.commands.queue.show import pauses

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class QueuePause(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "queue.pause"

    type: Type | None = None
    """Everything if none is named."""

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        region = context.settings.region
        paused = store.pauses.current(tx, region)
        wanted = self.type or store.pauses.EVERYTHING
        if wanted not in paused:
            if self.type is not None:
                _require_known(tx, region, self.type)
            store.pauses.add(tx, region, wanted)
            paused = sorted([*paused, wanted])
        return {"paused": paused}


def _require_known(tx: Tx, region: str, type: str) -> None:
    """A pause of a type that nobody has is a slip of the finger."""
    if not any(spec.type == type for spec in store.handlers.known(tx, region)):
        store.handlers.find(tx, region, type, None)


@groups.queue.command(
    "pause",
    epilog="""
        drumline queue pause mail.send
        drumline queue pause
    """,
)
@click.argument("type_", metavar="[TYPE]", type=terminal.TYPE, required=False)
@terminal.changes
def pause(type_: str | None, request_id: str | None) -> None:
    """Let no task of a type start; without TYPE, no task at all."""
    done = terminal.change("queue.pause", {"type": type_}, request_id)
    terminal.answer(done, f"paused: {pauses(done['paused'])}")
