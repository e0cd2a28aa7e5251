"""`drumline queue resume`: end the pause of a type, or the pause of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Type
from drumline.commands.queue.answers import QueuePauses, format_pauses
from drumline.errors import Conflict

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class QueueResume(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "queue.resume"

    type: Type | None = None
    """The type to resume; if none is given, the pause of everything ends."""

    def change(self, tx: Tx, context: Context) -> QueuePauses:
        region = context.settings.region
        wanted = self.type or store.pauses.EVERYTHING
        removed = store.pauses.remove(tx, region, wanted)
        paused = store.pauses.current(tx, region)
        if not removed:
            what = self.type or "the whole queue"
            raise Conflict(reason=f"{what} is not paused; paused: {format_pauses(paused)}")
        return QueuePauses(paused=paused)


@groups.queue.command(
    "resume",
    epilog="""
        drumline queue resume mail.send
        drumline queue resume
    """,
)
@click.argument("type_", metavar="[TYPE]", type=option_types.TYPE, required=False)
@option_types.request_id
def resume(type_: str | None, request_id: str | None) -> None:
    """Start tasks of TYPE again; without TYPE, end the pause of everything."""
    answer = gateway.change("queue.resume", {"type": type_}, request_id)
    output.print_result(answer, f"resumed; paused: {format_pauses(answer['paused'])}")
