"""Explains why a task is waiting: the `why` of `task show`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from drumline.command_layer import store
from drumline.command_layer.base import Context
from drumline.command_layer.fields import iso
from drumline.domain.dispatch.status import QueueStatus
from drumline.domain.states import DUE, Phase, TaskState
from drumline.domain.sweeps.definition import PARTITION_TARGET_TYPE
from drumline.errors import NotReachable

if TYPE_CHECKING:
    from drumline.store.rows import TaskRow
    from drumline.store.tx import Tx

EVERYTHING = "*"
COUNT_LIMIT = 10_000
"""How many of the tasks ahead are counted."""


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the database holds about a task that may be waiting."""

    id: int
    status: TaskState
    type: str
    key: str
    due_at: int
    now: int
    attempt: int = 0
    batch_id: int | None = None
    phase: Phase | None = None
    queued_reason: str | None = None
    """Why a firing is queued, if it waits for earlier runs of its job."""
    is_unowned: bool = True
    paused: tuple[str, ...] = ()
    is_served: bool = True
    """Whether a runner has announced that it can run the task."""
    ahead: int = 0
    """The number of due tasks before this one."""


class DispatcherFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the dispatcher reports about its queue and its workers."""

    queue: QueueStatus
    holders: dict[int, str] = {}
    """The names of the workers that hold tasks, by task id."""


def read_facts(tx: Tx, row: TaskRow) -> TaskFacts:
    """Read everything in the database that may hold a task back."""
    status = row.status
    facts = TaskFacts(
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
        is_queued = status is TaskState.SCHEDULED and row.owner == store.tables.NOBODY
        return msgspec.structs.replace(facts, queued_reason=row.info if is_queued else None)
    is_waiting = row.owner == 0 and row.due_at <= tx.now
    phase = None
    if row.batch_id is not None:
        phase = store.batches.phases_of(tx, [row.batch_id]).get(row.batch_id)
    return msgspec.structs.replace(
        facts,
        phase=phase,
        is_unowned=row.owner == 0,
        paused=tuple(store.pauses.current(tx, row.region)),
        is_served=any(spec.key == facts.key for spec in store.handlers.known(tx, row.region)),
        ahead=store.scan.ahead_of(tx, row, COUNT_LIMIT) if is_waiting else 0,
    )


def ask_dispatcher(context: Context) -> DispatcherFacts | None:
    """What the dispatcher knows; None if it does not answer."""
    try:
        queue = context.dispatcher.queue_status()
        workers = context.dispatcher.worker_statuses()
    except NotReachable:
        return None
    holders = {task_id: worker.name for worker in workers for task_id in worker.tasks}
    return DispatcherFacts(queue=queue, holders=holders)


def explain(task: TaskFacts, ask_dispatcher: Callable[[], DispatcherFacts | None]) -> str | None:
    """The first reason that applies, as a sentence; None for a task that is not waiting."""
    match task.status:
        case TaskState.SCHEDULED:
            return task.queued_reason or f"its firing is decided at {iso(task.due_at)}"
        case TaskState.WAITING_CALLBACK:
            return f"it waits for its callback until {iso(task.due_at)}"
        case status if status not in DUE:
            return None
    return _reason_in_database(task) or _reason_in_queue(task, ask_dispatcher())


def _reason_in_database(task: TaskFacts) -> str | None:
    match task.phase:
        case Phase.LOADING:
            return f"its batch {task.batch_id} is still being loaded"
        case Phase.CANCEL:
            return f"its batch {task.batch_id} is being cancelled"
    if not task.is_unowned:
        return f"its batch {task.batch_id} is just being started"
    if task.due_at > task.now:
        seconds = (task.due_at - task.now) / 1e6
        what = "its next attempt" if task.attempt else "it"
        return f"{what} is due in {seconds:.1f} s, at {iso(task.due_at)}"
    if EVERYTHING in task.paused:
        return "everything is paused: `drumline queue resume` lets it start"
    if task.type in task.paused:
        return f"its type is paused: `drumline queue resume {task.type}` lets it start"
    if not task.is_served:
        return f"no worker has ever announced that it can run {task.key}"
    return None


def _reason_in_queue(task: TaskFacts, dispatcher: DispatcherFacts | None) -> str:
    """Only other tasks hold this one back."""
    if dispatcher is None:
        return "the dispatcher does not answer; nothing starts without it"
    queue = dispatcher.queue
    if queue.pool_size == 0:
        return "there is no worker"
    if task.id in dispatcher.holders:
        return f"{dispatcher.holders[task.id]} has it and is about to start it"
    is_partition = task.key.startswith(f"{PARTITION_TARGET_TYPE}/")
    if is_partition and queue.partitions >= queue.partition_limit:
        return (
            f"this node runs {queue.partitions} sweep partitions, and its limit is "
            f"{queue.partition_limit}"
        )
    ahead = f"more than {COUNT_LIMIT}" if task.ahead >= COUNT_LIMIT else str(task.ahead)
    workers = f"{queue.free_workers} of {queue.pool_size} workers are free"
    if queue.length >= queue.capacity:
        return f"the queue is full ({queue.length} tasks), {ahead} are ahead of it; {workers}"
    if task.ahead:
        return f"{ahead} are ahead of it; {workers}"
    if queue.free_workers:
        return f"it is next; {workers}: it starts at once, or none of them can run {task.key}"
    return f"it is next; all {queue.pool_size} workers are busy"
