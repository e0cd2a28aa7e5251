"""What the commands that steer a whole batch share: begin a spread, or say why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.errors import Conflict, NotReachable

if TYPE_CHECKING:
    from sqlalchemy import Row

    from drumline.domain.states import Phase
    from drumline.store.batch.operations import BatchOperation
    from drumline.store.tx import Tx

    Plan = tuple[BatchOperation, Phase, tuple[Any, ...]]

TRIES = 5
PATIENCE = 20.0
"""Seconds that a caller is let wait for a spread; past that the scanner goes on with it."""
KILLS = 500
"""Runs that are killed at once; keepers read of any others with their next heartbeat."""


def begin(tx: Tx, context: Context, batch_id: int, plan: Callable[[Row[Any]], Plan]) -> Row[Any]:
    """Write a spread into a batch. The plan is made anew if the batch changes meanwhile."""
    for _ in range(TRIES):
        row = store.batches.get(tx, batch_id, context.settings.region)
        spread, phase, conditions = plan(row)
        if store.operations.begin(tx, row, spread, phase, *conditions):
            return row
    raise Conflict(reason=f"batch {batch_id} changes all the time; try again")


def refuse_during_spread(row: Row[Any]) -> None:
    if row.spread is not None:
        raise Conflict(reason=f"batch {row.id} is busy with {row.spread!r}; try again in a moment")


def carry_out(context: Context, batch_id: int) -> None:
    """Do what was begun, and have it noticed."""
    store.operations.run_operation(context.db, batch_id, PATIENCE)
    context.ring()


def kill_runs(context: Context, batch_id: int) -> None:
    """Have what still runs killed now; the keepers would kill it with their next heartbeat."""
    region = context.settings.region
    held = context.db.read(lambda tx: store.tasks.held_of(tx, region, batch_id, KILLS))
    for task_id in held:
        if not kill_run(context, task_id):
            return


def kill_run(context: Context, task_id: int) -> bool:
    """Have a run killed now. False: the dispatcher does not answer."""
    try:
        context.dispatcher.kill_task(task_id)
    except NotReachable:
        return False
    return True
