"""`drumline sweep stop`: no further item starts; the sweep can go on later where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import steering, store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.sweep.show import Key, said, shown
from drumline.domain.sweeps.sweep import LONGEST_NAME, Initiator

if TYPE_CHECKING:
    from drumline.store.tx import Tx

REASON_LIMIT = 500


class SweepStop(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.stop"

    sweep: Key
    force: bool = False
    """Kill what runs, instead of letting the items that run come to their end."""
    reason: Annotated[str, Meta(max_length=REASON_LIMIT)] | None = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = store.sweeps.get(tx, context.settings.region, self.sweep)
        row = store.sweeps.locked(tx, row.id)
        who = f"stopped by {context.actor}" if context.actor else "stopped by an operator"
        reason = f"{who}: {self.reason}" if self.reason else who
        stopped = store.sweeps.stop(tx, row, Initiator.OPERATOR, reason, kill=self.force)
        return shown(tx, stopped) | {"tasks": store.sweeps.tasks_of(tx, stopped)}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        if self.force:
            for task_id in answer["tasks"]:
                if not steering.kill_run(context, task_id):
                    break
        context.ring()


@groups.sweep.command(
    "stop",
    epilog="""
        drumline sweep stop june
        drumline sweep stop june --reason "the database is slow"
        drumline sweep stop june --force
    """,
)
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
@click.option("--reason", type=terminal.text(REASON_LIMIT), help="Shown to whoever looks at it.")
@click.option("--force", is_flag=True, help="Kill the items that run.")
@terminal.changes
def stop(sweep: str, reason: str | None, force: bool, request_id: str | None) -> None:
    """Stop a sweep; `start` goes on with it."""
    arguments = {"sweep": sweep, "reason": reason, "force": force}
    done = terminal.change("sweep.stop", arguments, request_id)
    terminal.answer(done, said(done))
