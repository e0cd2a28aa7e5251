"""Sweep rows and their state transitions.

Every transition locks the sweep's row first, then its tasks, and compares the version that it
read: of two transitions at once, the second starts again from the current row.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, update

from drumline.domain.policy import HandlerSpec
from drumline.domain.states import Cause, TaskState
from drumline.domain.sweeps.definition import HOOK_TARGET_TYPE, LARGEST_TOTAL, PARTITION_TARGET_TYPE
from drumline.domain.sweeps.partition import HookParam, ItemSource
from drumline.domain.sweeps.partitioning import split_into_partitions
from drumline.domain.sweeps.states import (
    Initiator,
    SweepState,
    check_sweep_transition,
    state_after_start,
    state_after_stop,
)
from drumline.errors import Conflict, NotFound
from drumline.store.admin import alarms
from drumline.store.rows import PartitionRow, SweepRow, read_first, read_one, read_rows
from drumline.store.tables import (
    ANYONE,
    NO_STOP,
    NOBODY,
    STOP_CANCEL,
    STOP_KILL,
    sweep,
    sweep_partition,
    task,
)
from drumline.store.task.tasks import add_one, new_row
from drumline.store.tx import RaceLost, Tx, new_id

NO_TIMEOUT = 0
"""`task.timeout_ms` of a partition: its items have timeouts, it has none."""
HOOK_SECONDS = 1800
REASON_LIMIT = 2_000


# --- defined -------------------------------------------------------------------------------------


def create(tx: Tx, region: str, values: Mapping[str, Any], spec: HandlerSpec) -> int:
    """Create a sweep. Its create hook, if it has one, must accept it before it can start."""
    name = values["name"]
    taken = select(sweep.c.id).where(sweep.c.unique_name == unique_name(region, name))
    if tx.execute(taken).first():
        raise Conflict(reason=f"There is already a sweep called {name!r}.")
    creates = spec.sweep is not None and spec.sweep.creates
    sweep_id = new_id(
        tx.execute(
            insert(sweep).values(
                **values,
                region=region,
                unique_name=unique_name(region, name),
                state=SweepState.CREATED,
                checked=not creates,
                stop_requested=False,
                errors_at_start=0,
                version=1,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )
    )
    if creates:
        row = lock(tx, sweep_id)
        _change(tx, row, hook_task_id=_add_hook(tx, row, "create"))
    return sweep_id


def get(tx: Tx, region: str, key: int | str) -> SweepRow:
    """A sweep by its id or its name; no name consists of digits only."""
    text = str(key)
    if text.isascii() and text.isdigit():
        is_it = sweep.c.id == min(int(text), LARGEST_TOTAL)
    else:
        is_it = sweep.c.unique_name == unique_name(region, text)
    row = read_first(tx, SweepRow, select(sweep).where(sweep.c.region == region, is_it))
    if row is None:
        raise NotFound(noun="sweep", id=key)
    return row


def lock(tx: Tx, sweep_id: int) -> SweepRow:
    """Lock a sweep until the commit and return it."""
    tx.execute(update(sweep).where(sweep.c.id == sweep_id).values(updated_at=tx.now))
    return read_one(tx, SweepRow, select(sweep).where(sweep.c.id == sweep_id))


def listed(
    tx: Tx, region: str, *, state: str | None = None, before: int | None = None, limit: int = 50
) -> list[SweepRow]:
    """The newest sweeps first, a page at a time."""
    statement = select(sweep).where(sweep.c.region == region)
    if state is not None:
        statement = statement.where(sweep.c.state == state)
    if before is not None:
        statement = statement.where(sweep.c.id < before)
    return read_rows(tx, SweepRow, statement.order_by(sweep.c.id.desc()).limit(limit))


def read_partitions(tx: Tx, ids: list[int]) -> dict[int, list[PartitionRow]]:
    """The partitions of these sweeps, in order."""
    found: dict[int, list[PartitionRow]] = {sweep_id: [] for sweep_id in ids}
    rows = read_rows(
        tx,
        PartitionRow,
        select(sweep_partition)
        .where(sweep_partition.c.sweep_id.in_(ids))
        .order_by(sweep_partition.c.number),
    )
    for row in rows:
        found[row.sweep_id].append(row)
    return found


def activity(tx: Tx, region: str) -> tuple[dict[str, int], float]:
    """How many sweeps are in each state, and how many items a second they do together."""
    rows = tx.execute(
        select(sweep.c.state, func.count().label("sweeps"))
        .where(sweep.c.region == region)
        .group_by(sweep.c.state)
    )
    found = {row.state: row.sweeps for row in rows}
    speed = (
        select(func.coalesce(func.sum(sweep_partition.c.speed), 0.0))
        .join(sweep, sweep.c.id == sweep_partition.c.sweep_id)
        .where(sweep.c.region == region, sweep.c.state == SweepState.RUNNING)
    )
    return found, float(tx.execute(speed).scalar_one())


def change(tx: Tx, row: SweepRow, version: int | None, values: Mapping[str, Any]) -> SweepRow:
    """Change a sweep that is still at this version."""
    if version is not None and version != row.version:
        raise Conflict(
            reason=f"Sweep {row.id} is at version {row.version}, not {version}: read it again "
            "before changing it."
        )
    return _change(tx, row, **values)


def tasks_of(tx: Tx, row: SweepRow) -> list[int]:
    """The unfinished tasks of a sweep: its partitions' and its hook's."""
    ids = [part.task_id for part in read_partitions(tx, [row.id])[row.id]] + [row.hook_task_id]
    return [task_id for task_id in ids if task_id is not None]


def free_name(tx: Tx, region: str, stem: str) -> str:
    """The first name of this stem and a number that no sweep has."""
    rows = tx.execute(
        select(sweep.c.name).where(
            sweep.c.region == region, sweep.c.name.startswith(f"{stem}-", autoescape=True)
        )
    )
    taken = set(rows.scalars())
    return next(name for n in count(1) if (name := f"{stem}-{n}") not in taken)


def unique_name(region: str, name: str) -> str:
    return f"{region}/{name}"


# --- moved ---------------------------------------------------------------------------------------


def start(tx: Tx, row: SweepRow, spec: HandlerSpec) -> SweepRow:
    """Start a sweep for an operator: at once, or after its prepare hook."""
    prepares = spec.sweep is not None and spec.sweep.prepares
    target = state_after_start(row.state, prepare=prepares or row.end_index is None)
    if not row.checked:
        raise Conflict(
            reason=f"The create hook of sweep {row.id} has not agreed yet: try again in a moment."
        )
    errors = select(func.coalesce(func.sum(sweep_partition.c.errors), 0)).where(
        sweep_partition.c.sweep_id == row.id
    )
    row = _change(
        tx,
        row,
        reason=None,
        stop_requested=False,
        errors_at_start=int(tx.execute(errors).scalar_one()),
        started_at=tx.now,
    )
    if target is SweepState.WAITING:
        return move(tx, row, target, Initiator.OPERATOR, hook_task_id=_add_hook(tx, row, "prepare"))
    return begin(tx, row, Initiator.OPERATOR)


def begin(tx: Tx, row: SweepRow, by: Initiator) -> SweepRow:
    """Run the sweep: create its partitions, and a task for each that is not done."""
    if row.end_index is None:
        raise Conflict(reason=f"The items of sweep {row.id} have not been counted yet.")
    end_index = row.end_index
    row = move(tx, row, SweepState.RUNNING, by)
    parts = read_partitions(tx, [row.id])[row.id]
    if not parts:
        wanted = min(row.partitions, end_index - row.first_index)
        for number, (first, end) in enumerate(
            split_into_partitions(row.first_index, end_index, wanted)
        ):
            _add_part(tx, row.id, number, first, end)
        parts = read_partitions(tx, [row.id])[row.id]
    for part in parts:
        if part.start_index < part.end_index:
            task_id = add_one(
                tx, _task(tx, row, PARTITION_TARGET_TYPE, NO_TIMEOUT, {"part": part.number})
            )
            tx.execute(
                update(sweep_partition)
                .where(sweep_partition.c.id == part.id)
                .values(task_id=task_id)
            )
    return row


def start_prepared(tx: Tx, row: SweepRow) -> SweepRow:
    """Start a sweep that waits for its preparation, on behalf of the handler."""
    check_sweep_transition(row.state, SweepState.RUNNING, Initiator.HANDLER)
    if row.hook_task_id is not None or row.end_index is None:
        raise Conflict(reason=f"The prepare hook of sweep {row.id} is not done yet.")
    return begin(tx, row, Initiator.HANDLER)


def stop(tx: Tx, row: SweepRow, by: Initiator, reason: str, *, kill: bool = False) -> SweepRow:
    """Stop a sweep: cancel its waiting tasks and request its running ones to stop."""
    target = state_after_stop(row.state, by, asked=row.stop_requested)
    if target != row.state:
        row = move(tx, row, target, by, stop_requested=True, reason=reason[:REASON_LIMIT])
    _stop_tasks(tx, row, STOP_KILL if kill else STOP_CANCEL)
    return conclude(tx, row)


def conclude(tx: Tx, row: SweepRow) -> SweepRow:
    """Finish or stop a sweep that has no unfinished task."""
    row = read_one(tx, SweepRow, select(sweep).where(sweep.c.id == row.id))
    parts = read_partitions(tx, [row.id])[row.id]
    if row.hook_task_id is not None or any(part.task_id is not None for part in parts):
        return row
    done = bool(parts) and all(part.start_index >= part.end_index for part in parts)
    if done:
        return move(tx, row, SweepState.FINISHED, Initiator.RUNNER, finished_at=tx.now)
    if row.state == SweepState.STOPPING:
        return move(tx, row, SweepState.STOPPED, Initiator.RUNNER)
    return row


def move(tx: Tx, row: SweepRow, target: SweepState, by: Initiator, **values: Any) -> SweepRow:
    """Make a state transition, the only way to change a sweep's state."""
    check_sweep_transition(row.state, target, by)
    row = _change(tx, row, state=target, **values)
    if target in (SweepState.STOPPED, SweepState.FAILED):
        alarms.after_sweep(tx, row.region, row.id, row.name, row.reason)
    return row


def schedule_prepare_hook(tx: Tx, row: SweepRow, seconds: float) -> SweepRow:
    """Run the prepare hook again after some seconds."""
    due_at = tx.now + int(seconds * 1e6)
    return _change(tx, row, hook_task_id=_add_hook(tx, row, "prepare", due_at))


def _change(tx: Tx, row: SweepRow, **values: Any) -> SweepRow:
    changed = tx.execute(
        update(sweep)
        .where(sweep.c.id == row.id, sweep.c.version == row.version)
        .values(**values, version=row.version + 1, updated_at=tx.now)
    ).rowcount
    if changed != 1:
        raise RaceLost
    return read_one(tx, SweepRow, select(sweep).where(sweep.c.id == row.id))


def _add_part(tx: Tx, sweep_id: int, number: int, first: int, end: int) -> None:
    tx.execute(
        insert(sweep_partition).values(
            sweep_id=sweep_id,
            number=number,
            first_index=first,
            end_index=end,
            start_index=first,
            errors=0,
            failed_kept=0,
            speed=0.0,
            running=False,
            updated_at=tx.now,
        )
    )


def _add_hook(tx: Tx, row: SweepRow, hook: str, due_at: int | None = None) -> int:
    param = HookParam(
        hook, row.id, row.name, source_of(row), row.extra, row.first_index, row.end_index
    )
    values = _task(tx, row, HOOK_TARGET_TYPE, HOOK_SECONDS * 1000, msgspec.to_builtins(param))
    return add_one(tx, values | {"due_at": due_at or tx.now})


def _task(
    tx: Tx, row: SweepRow, target_type: str, timeout_ms: int, param: dict[str, Any]
) -> dict[str, Any]:
    about = {
        "type": row.type,
        "target_type": target_type,
        "target_id": str(row.id),
        "target_name": row.name,
        "timeout_ms": timeout_ms,
        "param": msgspec.json.encode({"sweep_id": row.id, **param}).decode(),
    }
    return new_row(tx.now, row.region, about)


def source_of(row: SweepRow) -> ItemSource | None:
    if row.items is None and row.item_list is None:
        return None
    listed = None
    if row.item_list is not None:
        listed = msgspec.json.decode(row.item_list, type=tuple[str, ...])
    return ItemSource(row.items, listed, row.identity, row.total)


def _stop_tasks(tx: Tx, row: SweepRow, how: int) -> None:
    """Cancel the waiting tasks and request the running ones to stop. A hook is killed, since it
    cannot stop early by itself."""
    parts = read_partitions(tx, [row.id])[row.id]
    members = [part.task_id for part in parts if part.task_id is not None]
    hooks = [] if row.hook_task_id is None else [row.hook_task_id]
    waiting = _cancel_waiting(tx, [*members, *hooks])
    for ids, wanted in ((members, how), (hooks, STOP_KILL)):
        held = sorted(set(ids) - waiting)
        if held:
            tx.execute(
                update(task)
                .where(task.c.id.in_(held), task.c.owner > ANYONE, task.c.stop < wanted)
                .values(stop=wanted, updated_at=tx.now)
            )
    if waiting:
        tx.execute(
            update(sweep_partition)
            .where(sweep_partition.c.task_id.in_(waiting))
            .values(task_id=None)
        )
        tx.execute(update(sweep).where(sweep.c.hook_task_id.in_(waiting)).values(hook_task_id=None))


def _cancel_waiting(tx: Tx, ids: list[int]) -> set[int]:
    """Cancel those of the tasks that no keeper holds, and return them."""
    if not ids:
        return set()
    tx.execute(
        update(task)
        .where(task.c.id.in_(sorted(ids)), task.c.owner == ANYONE)
        .values(
            status=TaskState.CANCEL,
            cause=Cause.CANCELLED,
            info="its sweep was stopped before it started",
            owner=NOBODY,
            version=task.c.version + 1,
            stop=NO_STOP,
            updated_at=tx.now,
            finished_at=tx.now,
        )
    )
    rows = tx.execute(
        select(task.c.id).where(task.c.id.in_(ids), task.c.status == TaskState.CANCEL)
    )
    return set(rows.scalars())
