"""`drumline batch retry`: run the failed tasks of a batch again, all or some of them.

In a batch that was rolled back, the failed rollbacks are run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import batch_operations, store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id
from drumline.commands.batch.watch import answer_or_follow
from drumline.domain.states import BatchOperation, Phase
from drumline.errors import Conflict, NotFound

if TYPE_CHECKING:
    from drumline.command_layer.batch_operations import Plan
    from drumline.store.rows import BatchRow
    from drumline.store.tx import Tx

MAX_TASKS = 1000


class BatchRetried(Answer, frozen=True, kw_only=True):
    """How many tasks run again."""

    batch_id: int
    retried: int


class BatchRetry(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "batch.retry"

    batch_id: Id
    task_ids: Annotated[tuple[Id, ...], Meta(max_length=MAX_TASKS)] = ()
    """The tasks to retry; all failed tasks if none is given."""

    def change(self, tx: Tx, context: Context) -> BatchRetried:
        if self.task_ids:
            retried = self._retry_tasks(tx, context)
        else:
            row = batch_operations.begin(tx, context, self.batch_id, self.plan)
            retried = row.n_rollback_fail if row.phase == Phase.ROLLBACK else row.n_fail
        return BatchRetried(batch_id=self.batch_id, retried=retried)

    def plan(self, row: BatchRow) -> Plan:
        phase = row.phase
        if phase is Phase.CANCEL:
            raise Conflict(
                reason=f"batch {row.id} is cancelled: its failed tasks cannot be retried"
            )
        if phase is Phase.LOADING:
            raise Conflict(reason=f"batch {row.id} is still being loaded")
        batch_operations.refuse_if_busy(row)
        if not (row.n_rollback_fail if phase is Phase.ROLLBACK else row.n_fail):
            raise Conflict(reason=f"batch {row.id} has no failed task to retry")
        return BatchOperation.RETRY, phase, ()

    def _retry_tasks(self, tx: Tx, context: Context) -> int:
        region = context.settings.region
        store.batches.get(tx, self.batch_id, region)
        chosen = sorted(set(self.task_ids))
        for task_id in chosen:
            if store.tasks.get(tx, task_id, region).batch_id != self.batch_id:
                raise NotFound(noun=f"task {task_id} in batch", id=self.batch_id)
            store.tasks.retry(tx, task_id, region)
        return len(chosen)

    def after_commit(self, context: Context, answer: BatchRetried) -> None:
        batch_operations.apply(context, answer.batch_id)


@groups.batch.command(
    "retry",
    epilog="""
        drumline batch retry 12 --watch
        drumline batch retry 12 --task 3401 --task 3408
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
@click.option("--task", "task_ids", type=groups.ID, multiple=True, metavar="ID",
              help="Only this task; may be repeated.")  # fmt: skip
@click.option(
    "--watch", is_flag=True, help="Wait until the batch is finished; exit 1 unless it succeeds."
)
@option_types.request_id
def retry(batch_id: int, task_ids: tuple[int, ...], watch: bool, request_id: str | None) -> int:
    """Run the failed tasks of a batch again."""
    arguments = {"batch_id": batch_id, "task_ids": task_ids}
    answer = gateway.change("batch.retry", arguments, request_id)
    words = f"batch {batch_id}: {output.plural(answer['retried'], 'task')} to run again"
    return answer_or_follow(batch_id, answer, words, watch)
