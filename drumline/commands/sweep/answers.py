"""What the sweep commands answer with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.fields import from_json, iso
from drumline.domain.sweeps.progress import PartitionProgress, sum_progress
from drumline.domain.sweeps.states import ENDED, SweepState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.store.rows import PartitionRow, SweepRow
    from drumline.store.tx import Tx


class SweepSummary(Answer, frozen=True, kw_only=True):
    """A sweep and its progress."""

    id: int
    name: str
    type: str
    state: SweepState
    reason: str | None
    """Why the sweep stopped or failed."""
    finished: bool
    """Whether the sweep can run no further."""
    total: int | None
    """The number of items; unknown until a file or URL has been read."""
    done: int
    errors: int
    speed: float
    """Items per second."""
    eta_seconds: float | None
    first: int
    """The first index."""
    end: int | None
    """The index after the last one."""
    items: str | None
    rate: float | None
    parallel: int | None
    error_budget: int | None
    """The number of errors at which the sweep stops."""
    partitions: int
    running: int
    """The number of partitions that run."""
    checked: bool
    """Whether the handler's create hook has accepted the sweep, if it has one."""
    extra: Any
    creator: str | None
    rerun_of: int | None
    """The sweep of which this one repeats a range of indexes."""
    hook_task_id: int | None
    region: str
    version: int
    created_at: Moment
    updated_at: Moment
    started_at: Moment | None
    finished_at: Moment | None


class SweepPartition(Answer, frozen=True, kw_only=True):
    """A range of a sweep's indexes that runs on a worker of its own."""

    number: int
    first: int
    end: int
    start: int
    """The index at which the partition continues."""
    errors: int
    speed: float
    running: bool
    task_id: int | None
    updated_at: Moment


class SweepDetail(SweepSummary, frozen=True, kw_only=True):
    """A sweep with its partitions."""

    parts: list[SweepPartition]


class SweepPage(Answer, frozen=True, kw_only=True):
    """A page of sweeps, the newest first."""

    sweeps: list[SweepSummary]
    next: int | None
    """The `before` of the next page."""


def read_summary(tx: Tx, row: SweepRow) -> SweepSummary:
    """Summarise a sweep, reading its partitions."""
    return summarise_sweep(row, store.sweeps.read_partitions(tx, [row.id])[row.id])


def summarise_sweep(row: SweepRow, partitions: Sequence[PartitionRow]) -> SweepSummary:
    return SweepSummary(**summary_fields(row, partitions))


def describe_sweep(row: SweepRow, partitions: Sequence[PartitionRow]) -> SweepDetail:
    return SweepDetail(
        **summary_fields(row, partitions),
        parts=[_describe_partition(partition) for partition in partitions],
    )


def summary_fields(row: SweepRow, partitions: Sequence[PartitionRow]) -> dict[str, Any]:
    progress = sum_progress(
        PartitionProgress(
            partition.first_index,
            partition.end_index,
            partition.start_index,
            partition.errors,
            partition.speed,
        )
        for partition in partitions
    )
    total = None if row.end_index is None else row.end_index - row.first_index
    is_running = bool(partitions) and row.state == SweepState.RUNNING
    return {
        "id": row.id,
        "name": row.name,
        "type": row.type,
        "state": row.state,
        "reason": row.reason,
        "finished": row.state in ENDED,
        "total": total,
        "done": progress.done,
        "errors": progress.errors,
        "speed": round(progress.speed, 3),
        "eta_seconds": progress.eta if is_running else None,
        "first": row.first_index,
        "end": row.end_index,
        "items": row.items,
        "rate": row.rate,
        "parallel": row.parallel,
        "error_budget": row.errors,
        "partitions": row.partitions,
        "running": sum(bool(partition.running) for partition in partitions),
        "checked": bool(row.checked),
        "extra": from_json(row.extra),
        "creator": row.creator,
        "rerun_of": row.rerun_of,
        "hook_task_id": row.hook_task_id,
        "region": row.region,
        "version": row.version,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
    }


def _describe_partition(row: PartitionRow) -> SweepPartition:
    return SweepPartition(
        number=row.number,
        first=row.first_index,
        end=row.end_index,
        start=row.start_index,
        errors=row.errors,
        speed=round(row.speed, 3),
        running=bool(row.running),
        task_id=row.task_id,
        updated_at=iso(row.updated_at),
    )
