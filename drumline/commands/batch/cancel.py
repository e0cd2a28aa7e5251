"""`drumline batch cancel`: nothing of a batch starts any more.

What waits is cancelled at once. What runs goes on to its end and is cancelled then, or is killed
by `--force`. A batch that is still being loaded can be cancelled too, and so can a rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import steering, store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id
from drumline.domain.states import FINISHED, HELD, Phase
from drumline.errors import Conflict

if TYPE_CHECKING:
    from sqlalchemy import Row

    from drumline.command_layer.steering import Plan
    from drumline.store.tx import Tx


class BatchCancel(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.cancel"

    batch_id: Id
    force: bool = False

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = steering.begin(tx, context, self.batch_id, self.plan)
        counts = store.batches.counts(row)
        running = sum(counts[state] for state in HELD)
        waiting = sum(n for state, n in counts.items() if state not in FINISHED) - running
        return {
            "batch_id": row.id,
            "status": "cancel",
            "cancelled": waiting,
            "killing" if self.force else "running": running,
        }

    def plan(self, row: Row[Any]) -> Plan:
        counts = store.batches.counts(row)
        running = sum(counts[state] for state in HELD)
        if row.phase == Phase.CANCEL and not (self.force and running):
            still = f"; {running} of its tasks still run (--force kills them)" if running else ""
            raise Conflict(reason=f"batch {row.id} is already cancelled{still}")
        over = not any(n for state, n in counts.items() if state not in FINISHED)
        if over and row.spread is None and row.phase != Phase.LOADING:
            raise Conflict(
                reason=f"batch {row.id} is already finished: {store.batches.status_now(row)}"
            )
        kinds = store.operations.BatchOperation
        # Whatever is just being carried over the tasks is stopped by this: it wins.
        return kinds.KILL if self.force else kinds.CANCEL, Phase.CANCEL, ()

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        steering.carry_out(context, answer["batch_id"])
        if self.force:
            steering.kill_runs(context, answer["batch_id"])


@groups.batch.command(
    "cancel",
    epilog="""
        drumline batch cancel 12
        drumline batch cancel 12 --force
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
@click.option("--force", is_flag=True, help="Kill what runs.")
@terminal.changes
def cancel(batch_id: int, force: bool, request_id: str | None) -> None:
    """Cancel a batch: what waits at once, what runs at its end."""
    done = terminal.change("batch.cancel", {"batch_id": batch_id, "force": force}, request_id)
    words = f"batch {batch_id}: {terminal.counted(done['cancelled'], 'task')} cancelled"
    if done.get("killing"):
        words += f", {done['killing']} being killed"
    if done.get("running"):
        words += f", {done['running']} still running (--force kills them)"
    terminal.answer(done, words)
