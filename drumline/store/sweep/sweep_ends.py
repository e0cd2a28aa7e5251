"""The effect of a run's end on its sweep, in the transaction that writes the end.

The last end of a partition's task completes or stops the partition; the end of a hook's task lets
the sweep continue or fail. The sweep's row is locked before its tasks, see `sweeps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import select, update

from drumline.domain.release import FinishedRun, ReleaseDecision
from drumline.domain.states import FINISHED, TaskState
from drumline.domain.sweeps.partition import HookResult, PartitionResult
from drumline.domain.sweeps.states import Initiator, SweepState
from drumline.store.rows import PartitionRow, SweepRow, read_one
from drumline.store.sweep import sweeps
from drumline.store.tables import sweep, sweep_partition
from drumline.store.tx import Tx

T = TypeVar("T")

Owners = Mapping[int, int]
"""The sweep of each task, by task id."""


def lock_sweeps(tx: Tx, task_ids: Sequence[int]) -> Owners:
    """Lock the sweeps of these tasks, in ascending order."""
    parts = tx.execute(
        select(sweep_partition.c.task_id, sweep_partition.c.sweep_id).where(
            sweep_partition.c.task_id.in_(task_ids)
        )
    )
    hooks = tx.execute(
        select(sweep.c.hook_task_id, sweep.c.id).where(sweep.c.hook_task_id.in_(task_ids))
    )
    owners: dict[int, int] = {row[0]: row[1] for row in (*parts, *hooks)}
    for sweep_id in sorted(set(owners.values())):
        sweeps.lock(tx, sweep_id)
    return owners


def apply_run_ends(
    tx: Tx, owners: Owners, ended: Sequence[FinishedRun], verdicts: Mapping[int, ReleaseDecision]
) -> None:
    """Apply the ends of these runs to their sweeps."""
    for run in ended:
        if run.id not in owners:
            continue
        row = read_one(tx, SweepRow, select(sweep).where(sweep.c.id == owners[run.id]))
        if row.hook_task_id == run.id:
            _end_hook(tx, row, run, verdicts[run.id])
        else:
            _end_partition(tx, row, run, verdicts[run.id])


# --- partitions ----------------------------------------------------------------------------------


def _end_partition(tx: Tx, row: SweepRow, run: FinishedRun, verdict: ReleaseDecision) -> None:
    over = verdict.status in FINISHED
    this = sweep_partition.c.task_id == run.id
    part = read_one(tx, PartitionRow, select(sweep_partition).where(this))
    rest = {"task_id": None} if over else {}
    tx.execute(
        update(sweep_partition)
        .where(this)
        .values(running=False, speed=0.0, updated_at=tx.now, **rest)
    )
    if not over:
        return
    if part.start_index >= part.end_index or row.state != SweepState.RUNNING:
        sweeps.conclude(tx, row)
        return
    end = (
        _decoded(run.outcome.result, PartitionResult)
        if verdict.status is TaskState.SUCCESS
        else None
    )
    if end is None or end.reason is None:
        where = f"partition {part.number} at index {part.start_index:,}"
        sweeps.stop(tx, row, Initiator.RUNNER, f"{where}: {_reason(verdict)}")
    else:
        sweeps.stop(
            tx, row, Initiator.HANDLER if end.stopped_by_handler else Initiator.RUNNER, end.reason
        )


def _reason(verdict: ReleaseDecision) -> str:
    """Why a task did not succeed, in one line."""
    said = (verdict.info or "").strip().partition("\n")[0]
    what = "was cancelled" if verdict.status is TaskState.CANCEL else "failed"
    if verdict.cause is not None and verdict.cause != "error":
        what = f"{what} ({verdict.cause})"
    return f"its task {what}: {said}" if said else f"its task {what}"


# --- hooks ---------------------------------------------------------------------------------------


def _end_hook(tx: Tx, row: SweepRow, run: FinishedRun, verdict: ReleaseDecision) -> None:
    if verdict.status not in FINISHED:
        return
    if row.state == SweepState.STOPPING:
        row = sweeps.change(tx, row, None, {"hook_task_id": None})
        sweeps.conclude(tx, row)
        return
    end = _decoded(run.outcome.result, HookResult) if verdict.status is TaskState.SUCCESS else None
    creating = row.state == SweepState.CREATED
    if end is None:
        reason = f"its {'create' if creating else 'prepare'} hook broke: {_reason(verdict)}"
        target = SweepState.FAILED if creating else SweepState.STOPPED
        by = Initiator.HANDLER if creating else Initiator.RUNNER
        _end_sweep(tx, row, target, by, reason)
    elif end.refused is not None:
        _end_sweep(tx, row, SweepState.FAILED, Initiator.HANDLER, end.refused)
    elif creating:
        sweeps.change(tx, row, None, {"hook_task_id": None, "checked": True})
    elif (problem := _changed_source(row, end)) is not None:
        _end_sweep(tx, row, SweepState.STOPPED, Initiator.RUNNER, problem)
    else:
        _apply_preparation(tx, row, end)


def _apply_preparation(tx: Tx, row: SweepRow, end: HookResult) -> None:
    values: dict[str, Any] = {"hook_task_id": None}
    if end.total is not None:
        values |= {"total": end.total, "identity": end.identity}
        values["end_index"] = row.end_index or end.total
    if end.extra is not None:
        values["extra"] = end.extra
    row = sweeps.change(tx, row, None, values)
    if end.retry_after is not None:
        sweeps.schedule_prepare_hook(tx, row, end.retry_after)
    elif not end.waits:
        sweeps.begin(tx, row, Initiator.RUNNER)


def _changed_source(row: SweepRow, end: HookResult) -> str | None:
    if end.total is None or row.total is None:
        return None
    if (row.total, row.identity) == (end.total, end.identity):
        return None
    return f"the source has changed: it had {row.total:,} items and has {end.total:,} now"


def _end_sweep(tx: Tx, row: SweepRow, target: SweepState, by: Initiator, reason: str) -> None:
    finished = tx.now if target is SweepState.FAILED else None
    sweeps.move(
        tx,
        row,
        target,
        by,
        hook_task_id=None,
        reason=reason[: sweeps.REASON_LIMIT],
        finished_at=finished,
    )


def _decoded(text: str | None, kind: type[T]) -> T | None:
    return None if text is None else msgspec.json.decode(text, type=kind)
