"""`drumline batch rollback`: undo the changes of a batch.

Every task with a `before_update` is rolled back, failed and cancelled tasks included, in reverse
order of completion. Refused while any task of the batch is running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import batch_operations, store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id
from drumline.commands.batch.watch import answer_or_follow
from drumline.domain.states import BatchOperation, Phase
from drumline.errors import Conflict

if TYPE_CHECKING:
    from drumline.command_layer.batch_operations import Plan
    from drumline.store.rows import BatchRow
    from drumline.store.tx import Tx


class BatchRolledBack(Answer, frozen=True, kw_only=True):
    """The rollback has begun."""

    batch_id: int
    status: Literal["rollback_running"]


class BatchRollback(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.rollback"

    batch_id: Id

    def change(self, tx: Tx, context: Context) -> BatchRolledBack:
        row = batch_operations.begin(tx, context, self.batch_id, lambda row: self.plan(tx, row))
        return BatchRolledBack(batch_id=row.id, status="rollback_running")

    def plan(self, tx: Tx, row: BatchRow) -> Plan:
        _refuse_phase(row)
        batch_operations.refuse_if_busy(row)
        running = row.n_running + row.n_rollback_running + row.n_waiting_callback
        if running:
            raise Conflict(
                reason=f"{output.plural(running, 'task')} of batch {row.id} still running: "
                "wait, or kill them with `batch cancel --force`"
            )
        spec = store.handlers.find(tx, row.region, row.batch_type, row.target_type)
        if not spec.rolls_back:
            raise Conflict(
                reason=f"batch {row.id} cannot be rolled back: the handler of "
                f"{spec.type} ({spec.origin}) has no rollback"
            )
        if not store.operations.can_roll_back(tx, row.id):
            raise Conflict(
                reason=f"batch {row.id} has nothing to roll back: none of its tasks has a "
                "before_update"
            )
        return BatchOperation.ROLLBACK, Phase.ROLLBACK, store.operations.QUIET

    def after_commit(self, context: Context, answer: BatchRolledBack) -> None:
        batch_operations.apply(context, answer.batch_id)


def _refuse_phase(row: BatchRow) -> None:
    """A batch can be rolled back once, after it has been loaded."""
    if row.phase == Phase.LOADING:
        raise Conflict(reason=f"batch {row.id} is still being loaded")
    if row.phase == Phase.ROLLBACK:
        status = store.batches.current_status(row)
        hint = "; `batch retry` runs the failed rollbacks again" if row.n_rollback_fail else ""
        raise Conflict(reason=f"batch {row.id} is already being rolled back: {status}{hint}")


@groups.batch.command(
    "rollback",
    epilog="""
        drumline batch rollback 12
        drumline batch rollback 12 --watch
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
@click.option(
    "--watch", is_flag=True, help="Wait until the rollback ends; exit 1 unless it succeeds."
)
@option_types.request_id
def rollback(batch_id: int, watch: bool, request_id: str | None) -> int:
    """Roll a batch back, the latest change first."""
    answer = gateway.change("batch.rollback", {"batch_id": batch_id}, request_id)
    return answer_or_follow(batch_id, answer, f"batch {batch_id}: rolling back", watch)
