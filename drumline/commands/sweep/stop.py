"""`drumline sweep stop`: start no further items. The sweep can be continued later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import kills, store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.commands.sweep.answers import SweepSummary, summary_fields
from drumline.commands.sweep.show import Key, format_sweep
from drumline.domain.sweeps.definition import LONGEST_NAME
from drumline.domain.sweeps.states import Initiator

if TYPE_CHECKING:
    from drumline.store.tx import Tx

REASON_LIMIT = 500


class SweepStopped(SweepSummary, frozen=True, kw_only=True):
    """The sweep and the tasks that still run its items."""

    tasks: list[int]


class SweepStop(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "sweep.stop"

    sweep: Key
    force: bool = False
    """Kill the running items; otherwise they run to their end."""
    reason: Annotated[str, Meta(max_length=REASON_LIMIT)] | None = None
    """Shown as the reason why the sweep stopped."""

    def change(self, tx: Tx, context: Context) -> SweepStopped:
        row = store.sweeps.get(tx, context.settings.region, self.sweep)
        row = store.sweeps.lock(tx, row.id)
        who = f"stopped by {context.actor}" if context.actor else "stopped by an operator"
        reason = f"{who}: {self.reason}" if self.reason else who
        stopped = store.sweeps.stop(tx, row, Initiator.OPERATOR, reason, kill=self.force)
        partitions = store.sweeps.read_partitions(tx, [row.id])[row.id]
        return SweepStopped(
            **summary_fields(stopped, partitions), tasks=store.sweeps.tasks_of(tx, stopped)
        )

    def after_commit(self, context: Context, answer: SweepStopped) -> None:
        if self.force:
            for task_id in answer.tasks:
                if not kills.kill_task(context, task_id):
                    break
        context.notify_scanner()


@groups.sweep.command(
    "stop",
    epilog="""
        drumline sweep stop june
        drumline sweep stop june --reason "the database is slow"
        drumline sweep stop june --force
    """,
)
@click.argument("sweep", metavar="SWEEP", type=option_types.text(LONGEST_NAME))
@click.option(
    "--reason",
    type=option_types.text(REASON_LIMIT),
    help="Shown as the reason why the sweep stopped.",
)
@click.option("--force", is_flag=True, help="Kill the running items.")
@option_types.request_id
def stop(sweep: str, reason: str | None, force: bool, request_id: str | None) -> None:
    """Stop a sweep; `sweep start` continues it."""
    arguments = {"sweep": sweep, "reason": reason, "force": force}
    answer = gateway.change("sweep.stop", arguments, request_id)
    output.print_result(answer, format_sweep(answer))
