"""What the batch commands answer with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.fields import from_json, iso
from drumline.domain.states import BATCH_FINISHED, FINISHED, BatchState, Phase, TaskState

if TYPE_CHECKING:
    from drumline.store.rows import BatchRow


class BatchDetail(Answer, frozen=True, kw_only=True):
    """A batch, with the number of its tasks in each state."""

    id: int
    name: str
    status: BatchState
    finished: bool
    """Whether all tasks have ended and no cancel, retry or rollback is under way."""
    total: int
    counts: dict[TaskState, int]
    """The number of tasks by state; states without tasks are left out."""
    batch_type: str
    target_type: str
    creator: str | None
    cmdb_service: str | None
    env: str | None
    region: str
    az: str | None
    extra_info: Any
    phase: Phase
    operation: str | None
    """The operation that is being applied to the tasks, such as a cancel or a retry."""
    version: int
    created_at: Moment
    updated_at: Moment


class BatchPage(Answer, frozen=True, kw_only=True):
    """A page of batches, the newest first."""

    batches: list[BatchDetail]
    next: int | None
    """The `before` of the next page."""


class BatchSubmitted(Answer, frozen=True, kw_only=True):
    """A batch that was submitted, or a part of one that was loaded."""

    batch_id: int
    tasks: int


def describe_batch(row: BatchRow) -> BatchDetail:
    counts = {state: n for state, n in store.batches.counts(row).items() if n}
    status = store.batches.current_status(row)
    busy = row.operation is not None or bool(counts.keys() - FINISHED)
    return BatchDetail(
        id=row.id,
        name=row.name,
        status=status,
        finished=status in BATCH_FINISHED and not busy,
        total=row.total,
        counts=counts,
        batch_type=row.batch_type,
        target_type=row.target_type,
        creator=row.creator,
        cmdb_service=row.cmdb_service,
        env=row.env,
        region=row.region,
        az=row.az,
        extra_info=from_json(row.extra_info),
        phase=row.phase,
        operation=row.operation,
        version=row.version,
        created_at=iso(row.created_at),
        updated_at=iso(row.updated_at),
    )
