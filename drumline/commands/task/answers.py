"""What the task commands answer with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.fields import from_json, iso
from drumline.domain.states import Cause, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.store.rows import AttemptRow, TaskRow
    from drumline.store.task.tasks import TaskDetailRow, TaskListRow


class TaskSummary(Answer, frozen=True, kw_only=True):
    """A task in a list."""

    id: int
    batch_id: int | None
    job_id: int | None
    type: str
    target_type: str
    target_id: str | None
    target_name: str | None
    instance_id: str | None
    status: TaskState
    cause: Cause | None
    """Why a task failed, was cancelled or was skipped."""
    attempt: int
    priority: int
    due_at: Moment
    started_at: Moment | None
    finished_at: Moment | None


class TaskPage(Answer, frozen=True, kw_only=True):
    """A page of tasks, the newest first."""

    tasks: list[TaskSummary]
    next: int | None
    """The `before` of the next page."""


class TaskAttempt(Answer, frozen=True, kw_only=True):
    """An attempt that did not succeed."""

    attempt: int
    cause: Cause
    info: str | None
    worker: str | None
    started_at: Moment | None
    finished_at: Moment | None


class TargetParam(Answer, frozen=True, kw_only=True):
    """The state of a target before and after the change, as its handler captured it."""

    before_update: Any
    after_update: Any


class TaskDetail(TaskSummary, frozen=True, kw_only=True):
    """A task with its parameter, its result, its failed attempts and why it is waiting."""

    info: str | None
    retry_time: int
    failures: int
    deaths: int
    """How many attempts ended because the worker died."""
    stop_asked: Literal["cancel", "kill"] | None
    owner: str | None
    """The worker that runs the task."""
    keeper: int | None
    fence: int
    last_heartbeat: Moment | None
    timeout: float
    """Seconds."""
    param: Any
    target_env: str | None
    target_param: TargetParam
    result: Any
    env: str | None
    region: str
    version: int
    scheduled_at: Moment | None
    run_attempt: int | None
    """The number of the run among the runs of its job."""
    fired_by: str | None
    trace_id: str | None
    created_at: Moment
    updated_at: Moment
    last_failure_at: Moment | None
    why: str | None
    """Why the task is waiting."""
    attempts: list[TaskAttempt]


def summarise_task(row: TaskListRow) -> TaskSummary:
    return TaskSummary(**_summary_fields(row))


def describe_task(
    row: TaskDetailRow, attempts: Iterable[AttemptRow], why: str | None
) -> TaskDetail:
    return TaskDetail(
        **_summary_fields(row),
        info=row.info,
        retry_time=row.retry_time,
        failures=row.failures,
        deaths=row.deaths,
        stop_asked=None if row.stop == 0 else "cancel" if row.stop == 1 else "kill",
        owner=row.owner_name,
        keeper=row.owner if row.owner_name is not None else None,
        fence=row.fence,
        last_heartbeat=iso(row.last_heartbeat),
        timeout=row.timeout_ms / 1000,
        param=from_json(row.param),
        target_env=row.target_env,
        target_param=TargetParam(
            before_update=from_json(row.before_update), after_update=from_json(row.after_update)
        ),
        result=from_json(row.result),
        env=row.env,
        region=row.region,
        version=row.version,
        scheduled_at=iso(row.scheduled_at),
        run_attempt=row.run_attempt,
        fired_by=row.fired_by,
        trace_id=row.trace_id,
        created_at=iso(row.created_at),
        updated_at=iso(row.updated_at),
        last_failure_at=iso(row.last_failure_at),
        why=why,
        attempts=[_describe_attempt(attempt) for attempt in attempts],
    )


def _summary_fields(row: TaskListRow | TaskRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "batch_id": row.batch_id,
        "job_id": row.job_id,
        "type": row.type,
        "target_type": row.target_type,
        "target_id": row.target_id,
        "target_name": row.target_name,
        "instance_id": row.instance_id,
        "status": row.status,
        "cause": row.cause,
        "attempt": row.attempt,
        "priority": row.priority,
        "due_at": iso(row.due_at),
        "started_at": iso(row.started_at or None),
        "finished_at": iso(row.finished_at or None),
    }


def _describe_attempt(row: AttemptRow) -> TaskAttempt:
    return TaskAttempt(
        attempt=row.attempt,
        cause=row.cause,
        info=row.info,
        worker=row.worker,
        started_at=iso(row.started_at or None),
        finished_at=iso(row.finished_at or None),
    )
