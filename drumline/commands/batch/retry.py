"""`drumline batch retry`: run what failed again, all of it or some.

In a batch that was rolled back, the rollbacks that failed are tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import steering, store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id
from drumline.commands.batch.watch import told
from drumline.domain.states import Phase
from drumline.errors import Conflict, NotFound

if TYPE_CHECKING:
    from sqlalchemy import Row

    from drumline.command_layer.steering import Plan
    from drumline.store.tx import Tx

MOST = 1000


class BatchRetry(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.retry"

    batch_id: Id
    task_ids: Annotated[tuple[Id, ...], Meta(max_length=MOST)] = ()
    """All that failed if none is named."""

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        if self.task_ids:
            retried = self.some(tx, context)
        else:
            row = steering.begin(tx, context, self.batch_id, self.plan)
            retried = row.n_rollback_fail if row.phase == Phase.ROLLBACK else row.n_fail
        return {"batch_id": self.batch_id, "retried": retried}

    def plan(self, row: Row[Any]) -> Plan:
        phase = Phase(row.phase)
        if phase is Phase.CANCEL:
            raise Conflict(reason=f"batch {row.id} is cancelled: what failed in it stays so")
        if phase is Phase.LOADING:
            raise Conflict(reason=f"batch {row.id} is still being loaded")
        steering.refuse_during_spread(row)
        if not (row.n_rollback_fail if phase is Phase.ROLLBACK else row.n_fail):
            raise Conflict(reason=f"batch {row.id} has no failed task to retry")
        return store.operations.BatchOperation.RETRY, phase, ()

    def some(self, tx: Tx, context: Context) -> int:
        region = context.settings.region
        store.batches.get(tx, self.batch_id, region)
        chosen = sorted(set(self.task_ids))
        for task_id in chosen:
            if store.tasks.get(tx, task_id, region).batch_id != self.batch_id:
                raise NotFound(noun=f"task {task_id} in batch", id=self.batch_id)
            store.tasks.retry(tx, task_id, region)
        return len(chosen)

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        steering.carry_out(context, answer["batch_id"])


@groups.batch.command(
    "retry",
    epilog="""
        drumline batch retry 12 --watch
        drumline batch retry 12 --task 3401 --task 3408
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
@click.option("--task", "task_ids", type=groups.ID, multiple=True, metavar="ID",
              help="Only this one. May be given many times.")  # fmt: skip
@click.option("--watch", is_flag=True, help="Stay until it is finished. Exit 1 unless success.")
@terminal.changes
def retry(batch_id: int, task_ids: tuple[int, ...], watch: bool, request_id: str | None) -> int:
    """Run the failed tasks of a batch again."""
    arguments = {"batch_id": batch_id, "task_ids": task_ids}
    done = terminal.change("batch.retry", arguments, request_id)
    words = f"batch {batch_id}: {terminal.counted(done['retried'], 'task')} to run again"
    return told(batch_id, done, words, watch)
