"""`drumline queue resume`: undo a pause. Each pause is undone by itself, as it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Type
from drumline.commands.queue.show import pauses
from drumline.errors import Conflict

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class QueueResume(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "queue.resume"

    type: Type | None = None
    """The pause of everything if none is named."""

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        region = context.settings.region
        wanted = self.type or store.pauses.EVERYTHING
        removed = store.pauses.remove(tx, region, wanted)
        paused = store.pauses.current(tx, region)
        if not removed:
            what = self.type or "the queue as a whole"
            raise Conflict(reason=f"{what} is not paused; paused: {pauses(paused)}")
        return {"paused": paused}


@groups.queue.command(
    "resume",
    epilog="""
        drumline queue resume mail.send
        drumline queue resume
    """,
)
@click.argument("type_", metavar="[TYPE]", type=terminal.TYPE, required=False)
@terminal.changes
def resume(type_: str | None, request_id: str | None) -> None:
    """Let a paused type start again; without TYPE, undo the pause of everything."""
    done = terminal.change("queue.resume", {"type": type_}, request_id)
    terminal.answer(done, f"resumed; paused: {pauses(done['paused'])}")
