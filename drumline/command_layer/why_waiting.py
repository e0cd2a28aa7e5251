"""Why a task is waiting: the question that other schedulers leave to guessing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.command_layer.fields import iso
from drumline.domain.dispatch.status import QueueStatus
from drumline.domain.states import DUE, Phase, TaskState
from drumline.domain.sweeps.sweep import PARTITION_TARGET_TYPE
from drumline.errors import NotReachable

if TYPE_CHECKING:
    from sqlalchemy import Row

    from drumline.store.tx import Tx

EVERYTHING = "*"
FAR = 10_000
"""Others are counted up to here."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the database knows of a task's waiting."""

    id: int
    status: TaskState
    type: str
    key: str
    due_at: int
    now: int
    attempt: int = 0
    batch_id: int | None = None
    phase: Phase | None = None
    queued: str | None = None
    """A firing that waits for its turn: what was said when it was queued."""
    free: bool = True
    """Anyone may take it."""
    paused: tuple[str, ...] = ()
    known: bool = True
    """A runner has announced that it can run this."""
    ahead: int = 0


class DispatcherState(msgspec.Struct, frozen=True, kw_only=True):
    """What the dispatcher reports about its queue and its workers."""

    queue: QueueStatus
    holders: dict[int, str] = {}
    """The names of the workers that hold tasks, by task id."""


def facts(tx: Tx, row: Row[Any]) -> Facts:
    """Look at whatever may hold a task back."""
    status = TaskState(row.status)
    found = Facts(
        id=row.id,
        status=status,
        type=row.type,
        key=f"{row.target_type}/{row.type}",
        due_at=row.due_at,
        now=tx.now,
        attempt=row.attempt,
        batch_id=row.batch_id,
    )
    if status not in DUE:
        queued = status is TaskState.SCHEDULED and row.owner == store.tables.NOBODY
        return msgspec.structs.replace(found, queued=row.info if queued else None)
    waits = row.owner == 0 and row.due_at <= tx.now
    phases = {} if row.batch_id is None else store.batches.phases_of(tx, [row.batch_id])
    return msgspec.structs.replace(
        found,
        phase=phases.get(row.batch_id),
        free=row.owner == 0,
        paused=tuple(store.pauses.current(tx, row.region)),
        known=any(spec.key == found.key for spec in store.handlers.known(tx, row.region)),
        ahead=store.scan.ahead_of(tx, row, FAR) if waits else 0,
    )


def read_dispatcher_state(context: Context) -> DispatcherState | None:
    """The dispatcher's state; None if it does not answer."""
    try:
        queue, workers = context.dispatcher.queue_status(), context.dispatcher.worker_statuses()
    except NotReachable:
        return None
    holders = {task_id: worker.name for worker in workers for task_id in worker.tasks}
    return DispatcherState(queue=queue, holders=holders)


def explain(task: Facts, dispatcher: Callable[[], DispatcherState | None]) -> str | None:
    """A sentence, or None for a task that is not waiting. The first reason that holds is given."""
    match task.status:
        case TaskState.SCHEDULED:
            return task.queued or f"its firing is decided at {iso(task.due_at)}"
        case TaskState.WAITING_CALLBACK:
            return f"it waits for its callback until {iso(task.due_at)}"
        case status if status not in DUE:
            return None
    return _held_back(task) or _in_line(task, dispatcher())


def _held_back(task: Facts) -> str | None:
    """Reasons that are in the database."""
    match task.phase:
        case Phase.LOADING:
            return f"its batch {task.batch_id} is still being loaded"
        case Phase.CANCEL:
            return f"its batch {task.batch_id} is being cancelled"
    if not task.free:
        return f"its batch {task.batch_id} is just being started"
    if task.due_at > task.now:
        seconds = (task.due_at - task.now) / 1e6
        what = "its next attempt" if task.attempt else "it"
        return f"{what} is due in {seconds:.1f} s, at {iso(task.due_at)}"
    if EVERYTHING in task.paused:
        return "everything is paused: `drumline queue resume` lets it start"
    if task.type in task.paused:
        return f"its type is paused: `drumline queue resume {task.type}` lets it start"
    if not task.known:
        return f"no worker has ever announced that it can run {task.key}"
    return None


def _in_line(task: Facts, state: DispatcherState | None) -> str:
    """Nothing holds it back but others."""
    if state is None:
        return "the dispatcher does not answer; nothing starts without it"
    queue = state.queue
    if queue.pool_size == 0:
        return "there is no worker"
    if task.id in state.holders:
        return f"{state.holders[task.id]} has it and is about to start it"
    is_partition = task.key.startswith(f"{PARTITION_TARGET_TYPE}/")
    if is_partition and queue.partitions >= queue.partition_limit:
        return (
            f"this node runs {queue.partitions} partitions of sweeps, "
            f"its share is {queue.partition_limit}"
        )
    others = f"more than {FAR}" if task.ahead >= FAR else str(task.ahead)
    workers = f"{queue.free_workers} of {queue.pool_size} workers are free"
    if queue.length >= queue.capacity:
        return f"the queue is full ({queue.length} tasks), {others} are ahead of it; {workers}"
    if task.ahead:
        return f"{others} are ahead of it; {workers}"
    if queue.free_workers:
        return f"it is next; {workers}: it starts at once, or none of them can run {task.key}"
    return f"it is next; all {queue.pool_size} workers are busy"
