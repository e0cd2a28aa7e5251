"""What the commands that cancel, retry, roll back or load a batch have in common.

Each writes an operation into the batch row, and applies it to the batch's tasks after the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.command_layer.kills import kill_task
from drumline.domain.states import BatchOperation
from drumline.errors import Conflict

if TYPE_CHECKING:
    from drumline.domain.states import Phase
    from drumline.store.rows import BatchRow
    from drumline.store.tx import Tx

    Plan = tuple[BatchOperation, Phase, tuple[Any, ...]]

MAX_ATTEMPTS = 5
APPLY_SECONDS = 20.0
"""How long a caller waits while the operation is applied; the scanner applies the rest."""
MAX_KILLS = 500
"""How many runs are killed at once; keepers read of any others at their next heartbeat."""


def begin(tx: Tx, context: Context, batch_id: int, plan: Callable[[BatchRow], Plan]) -> BatchRow:
    """Write an operation into a batch. `plan` is called again if the batch changes meanwhile."""
    for _ in range(MAX_ATTEMPTS):
        row = store.batches.get(tx, batch_id, context.settings.region)
        operation, phase, conditions = plan(row)
        if store.operations.begin_operation(tx, row, operation, phase, *conditions):
            return row
    raise Conflict(reason=f"batch {batch_id} is being modified concurrently; retry")


def refuse_if_busy(row: BatchRow) -> None:
    """Refuse a batch to which another operation is still being applied."""
    if row.operation is not None:
        raise Conflict(reason=f"batch {row.id} is busy with {row.operation}; retry in a moment")


def apply(context: Context, batch_id: int) -> None:
    """Apply the operation that was begun to the batch's tasks, and notify the scanner."""
    store.operations.run_operation(context.db, batch_id, APPLY_SECONDS)
    context.notify_scanner()


def kill_runs(context: Context, batch_id: int) -> None:
    """Have the batch's running tasks killed now."""
    region = context.settings.region
    held = context.db.read(lambda tx: store.tasks.held_of(tx, region, batch_id, MAX_KILLS))
    for task_id in held:
        if not kill_task(context, task_id):
            return
