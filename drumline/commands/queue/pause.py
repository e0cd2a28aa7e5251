"""`drumline queue pause`: start no tasks of a type, or no tasks at all, until they are resumed.

Running tasks continue. A pause is stored in the database and survives restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Type
from drumline.commands.queue.answers import QueuePauses, format_pauses

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class QueuePause(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "queue.pause"

    type: Type | None = None
    """The type to pause; all types if none is given."""

    def change(self, tx: Tx, context: Context) -> QueuePauses:
        region = context.settings.region
        paused = store.pauses.current(tx, region)
        wanted = self.type or store.pauses.EVERYTHING
        if wanted not in paused:
            if self.type is not None:
                _require_known(tx, region, self.type)
            store.pauses.add(tx, region, wanted)
            paused = sorted([*paused, wanted])
        return QueuePauses(paused=paused)


def _require_known(tx: Tx, region: str, type: str) -> None:
    """Refuse a type that has no handler: it is most likely misspelt."""
    if not any(spec.type == type for spec in store.handlers.known(tx, region)):
        store.handlers.find(tx, region, type, None)


@groups.queue.command(
    "pause",
    epilog="""
        drumline queue pause mail.send
        drumline queue pause
    """,
)
@click.argument("type_", metavar="[TYPE]", type=option_types.TYPE, required=False)
@option_types.request_id
def pause(type_: str | None, request_id: str | None) -> None:
    """Start no tasks of TYPE; without TYPE, no tasks at all."""
    answer = gateway.change("queue.pause", {"type": type_}, request_id)
    output.print_result(answer, f"paused: {format_pauses(answer['paused'])}")
