"""`drumline batch rollback`: bring back what a batch has changed.

Every task with a `before_update` is rolled back, also failed and cancelled ones, the last to have
ended first. Refused while any task of the batch runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer import steering, store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id
from drumline.commands.batch.watch import told
from drumline.domain.states import Phase
from drumline.errors import Conflict

if TYPE_CHECKING:
    from sqlalchemy import Row

    from drumline.command_layer.steering import Plan
    from drumline.store.tx import Tx


class BatchRollback(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.rollback"

    batch_id: Id

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = steering.begin(tx, context, self.batch_id, lambda row: self.plan(tx, row))
        return {"batch_id": row.id, "status": "rollback_running"}

    def plan(self, tx: Tx, row: Row[Any]) -> Plan:
        refuse_phase(row)
        steering.refuse_during_spread(row)
        running = row.n_running + row.n_rollback_running + row.n_waiting_callback
        if running:
            raise Conflict(
                reason=f"{terminal.counted(running, 'task')} of batch {row.id} still running: "
                "wait, or end what runs with `batch cancel --force`"
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
        return store.operations.BatchOperation.ROLLBACK, Phase.ROLLBACK, store.operations.QUIET

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        steering.carry_out(context, answer["batch_id"])


def refuse_phase(row: Row[Any]) -> None:
    """A batch is rolled back once, from where it stands."""
    if row.phase == Phase.LOADING:
        raise Conflict(reason=f"batch {row.id} is still being loaded")
    if row.phase == Phase.ROLLBACK:
        status = store.batches.status_now(row)
        hint = "; `batch retry` tries again what failed" if row.n_rollback_fail else ""
        raise Conflict(reason=f"batch {row.id} is already in its rollback: {status}{hint}")


@groups.batch.command(
    "rollback",
    epilog="""
        drumline batch rollback 12
        drumline batch rollback 12 --watch
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
@click.option("--watch", is_flag=True, help="Stay until the end. Exit 1 unless rollback_success.")
@terminal.changes
def rollback(batch_id: int, watch: bool, request_id: str | None) -> int:
    """Roll a batch back: the last change first."""
    done = terminal.change("batch.rollback", {"batch_id": batch_id}, request_id)
    return told(batch_id, done, f"batch {batch_id}: rolling back", watch)
