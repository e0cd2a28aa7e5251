"""`drumline batch cancel`: cancel the tasks of a batch that have not ended.

Waiting tasks are cancelled at once, running tasks when they end; `--force` kills them. A batch that
is still being loaded, or that is being rolled back, can be cancelled too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import click
from msgspec import UNSET, UnsetType

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import batch_operations, store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id
from drumline.domain.states import FINISHED, HELD, BatchOperation, Phase
from drumline.errors import Conflict

if TYPE_CHECKING:
    from drumline.command_layer.batch_operations import Plan
    from drumline.store.rows import BatchRow
    from drumline.store.tx import Tx


class BatchCancelled(Answer, frozen=True, kw_only=True):
    """How many tasks are cancelled at once, and how many are running."""

    batch_id: int
    status: Literal["cancel"]
    cancelled: int
    running: int | UnsetType = UNSET
    """Tasks that are cancelled when they end (without `force`)."""
    killing: int | UnsetType = UNSET
    """Tasks that are being killed (with `force`)."""


class BatchCancel(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.cancel"

    batch_id: Id
    force: bool = False
    """Kill running tasks."""

    def change(self, tx: Tx, context: Context) -> BatchCancelled:
        row = batch_operations.begin(tx, context, self.batch_id, self.plan)
        counts = store.batches.counts(row)
        running = sum(counts[state] for state in HELD)
        waiting = sum(n for state, n in counts.items() if state not in FINISHED) - running
        return BatchCancelled(
            batch_id=row.id,
            status="cancel",
            cancelled=waiting,
            killing=running if self.force else UNSET,
            running=UNSET if self.force else running,
        )

    def plan(self, row: BatchRow) -> Plan:
        counts = store.batches.counts(row)
        running = sum(counts[state] for state in HELD)
        if row.phase == Phase.CANCEL and not (self.force and running):
            hint = f"; {running} of its tasks are running (--force kills them)" if running else ""
            raise Conflict(reason=f"batch {row.id} is already cancelled{hint}")
        is_over = not any(n for state, n in counts.items() if state not in FINISHED)
        if is_over and row.operation is None and row.phase != Phase.LOADING:
            raise Conflict(
                reason=f"batch {row.id} is already finished: {store.batches.current_status(row)}"
            )
        kinds = BatchOperation
        # A cancel replaces any operation that is still being applied to the tasks.
        return kinds.KILL if self.force else kinds.CANCEL, Phase.CANCEL, ()

    def after_commit(self, context: Context, answer: BatchCancelled) -> None:
        batch_operations.apply(context, answer.batch_id)
        if self.force:
            batch_operations.kill_runs(context, answer.batch_id)


@groups.batch.command(
    "cancel",
    epilog="""
        drumline batch cancel 12
        drumline batch cancel 12 --force
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
@click.option("--force", is_flag=True, help="Kill running tasks.")
@option_types.request_id
def cancel(batch_id: int, force: bool, request_id: str | None) -> None:
    """Cancel a batch: waiting tasks at once, running tasks when they end."""
    answer = gateway.change("batch.cancel", {"batch_id": batch_id, "force": force}, request_id)
    words = f"batch {batch_id}: {output.plural(answer['cancelled'], 'task')} cancelled"
    if answer.get("killing"):
        words += f", {answer['killing']} being killed"
    if answer.get("running"):
        words += f", {answer['running']} still running (--force kills them)"
    output.print_result(answer, words)
