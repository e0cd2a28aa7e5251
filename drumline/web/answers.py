"""What the answers look like, for the description. The tests hold the answers against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from drumline.domain.jobs.firing import CatchUpMode, ConcurrencyPolicy, FailureAction, OverlapAction
from drumline.domain.roles import Role
from drumline.domain.states import BatchState, Cause, Phase, TaskState
from drumline.handlers.http.call import ExecType

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Next = Annotated[int | None, Meta(description="The `before` of the next page.")]


class LastRun(TypedDict):
    id: int
    status: TaskState
    cause: Cause | None
    scheduled_at: Moment
    finished_at: Moment | None


class Job(TypedDict):
    id: int
    name: str
    description: str | None
    status: Literal["ENABLED", "DISABLED"]
    cron_expr: str
    timezone: str
    starts_at: Moment | None
    ends_at: Moment | None
    jitter_seconds: int
    exec_type: ExecType
    http_method: str | None
    target_url: str | None
    headers_json: str | None
    body_template: str | None
    type: str
    target_type: str
    param: Any
    timeout_seconds: int
    retry_policy_json: str | None
    max_concurrency: int
    concurrency_policy: ConcurrencyPolicy
    overlap_action: OverlapAction
    failure_action: FailureAction
    catch_up_mode: CatchUpMode
    misfire_grace_seconds: int
    callback_method: str | None
    callback_timeout_sec: int | None
    priority: int
    env: str | None
    region: str
    version: int
    deleted: bool
    created_at: Moment
    updated_at: Moment
    next_firing: Moment | None
    last_run: LastRun | None


class WholeJob(Job):
    next_firings: list[Moment]
    runs_under_way: int
    runs_queued: int


class Jobs(TypedDict):
    jobs: list[Job]
    next: Next


class DeletedJob(TypedDict):
    id: int
    name: str
    deleted: bool


class Triggered(TypedDict):
    job_id: int
    name: str
    task_id: int
    done: Literal["runs", "queued", "skipped"]
    cause: Cause | None
    reason: str
    run_attempt: int


class Run(TypedDict):
    id: int
    job_id: int
    status: TaskState
    cause: Cause | None
    reason: str | None
    scheduled_at: Moment
    due_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    fired_by: str | None
    run_attempt: int | None
    attempt: int
    trace_id: str | None


class Runs(TypedDict):
    job_id: int
    runs: list[Run]
    next: Annotated[str | None, Meta(description="The `before` of the next page.")]


class Firing(TypedDict):
    utc: Moment
    local: Moment


class Firings(TypedDict):
    cron_expr: str
    timezone: str
    firings: list[Firing]


class Batch(TypedDict):
    id: int
    name: str
    status: BatchState
    finished: bool
    total: int
    counts: dict[str, int]
    batch_type: str
    target_type: str
    creator: str | None
    cmdb_service: str | None
    env: str | None
    region: str
    az: str | None
    extra_info: Any
    phase: Phase
    spread: str | None
    version: int
    created_at: Moment
    updated_at: Moment


class Batches(TypedDict):
    batches: list[Batch]
    next: Next


class Submitted(TypedDict):
    batch_id: int
    tasks: int


class CancelledBatch(TypedDict):
    batch_id: int
    status: BatchState
    cancelled: int
    running: NotRequired[int]
    killing: NotRequired[int]


class RetriedBatch(TypedDict):
    batch_id: int
    retried: int


class RolledBack(TypedDict):
    batch_id: int
    status: BatchState


class Discarded(TypedDict):
    batch_id: int
    discarded: int


class Task(TypedDict):
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
    attempt: int
    priority: int
    due_at: Moment
    started_at: Moment | None
    finished_at: Moment | None


class Attempt(TypedDict):
    attempt: int
    cause: Cause
    info: str | None
    worker: str | None
    started_at: Moment | None
    finished_at: Moment


class WholeTask(Task):
    info: str | None
    retry_time: int
    failures: int
    deaths: int
    stop_asked: Literal["cancel", "kill"] | None
    owner: str | None
    keeper: int | None
    fence: int
    last_heartbeat: Moment | None
    timeout: float
    param: Any
    target_env: str | None
    target_param: dict[str, Any]
    result: Any
    env: str | None
    region: str
    version: int
    scheduled_at: Moment | None
    run_attempt: int | None
    fired_by: str | None
    trace_id: str | None
    created_at: Moment
    updated_at: Moment
    last_failure_at: Moment | None
    why: str | None
    attempts: list[Attempt]


class Tasks(TypedDict):
    tasks: list[Task]
    next: Next


class Scheduled(TypedDict):
    task_id: int
    due_at: Moment


class ScheduledMany(TypedDict):
    tasks: int
    due_at: Moment


class Rescheduled(Scheduled):
    priority: int


class CancelledTask(TypedDict):
    task_id: int
    state: Literal["cancel", "stopping", "killing"]


class RetriedTask(TypedDict):
    task_id: int
    status: TaskState


class Worker(TypedDict):
    name: str
    node: str
    pid: int
    keeper: int
    state: str
    holds: int | None
    tasks: list[int]
    started_at: Moment
    last_heartbeat: Moment


class Workers(TypedDict):
    workers: list[Worker]
    dispatcher: Annotated[bool, Meta(description="Whether this node's dispatcher answers.")]


class Paused(TypedDict):
    paused: list[str]


class Handler(TypedDict):
    target_type: str
    type: str
    timeout: float
    retries: int
    captures: bool
    rolls_back: bool
    on_death: str
    origin: str
    doc: str
    schema: dict[str, Any] | None


class Handlers(TypedDict):
    handlers: list[Handler]


class NewToken(TypedDict):
    name: str
    role: Role
    token: NotRequired[Annotated[str, Meta(description="It is told this once.")]]


class Token(TypedDict):
    id: int
    name: str
    role: Role
    created_at: Moment
    last_used_at: Moment | None
    revoked_at: Moment | None


class Tokens(TypedDict):
    tokens: list[Token]
    next: Next


class Line(TypedDict):
    id: int
    at: Moment
    actor: str
    door: Literal["control", "rest"]
    command: str
    subject: str
    arguments: dict[str, Any]
    result: str
    reason: str | None
    request_id: str


class Trail(TypedDict):
    audit: list[Line]
    next: Next


class Status(TypedDict):
    version: str
    node: str
    region: str
    ready: bool
    missing: list[str]
    processes: list[dict[str, Any]]


class CalledBack(TypedDict):
    task_id: int
    done: Literal["done", "kept", "noted"]


ANSWERS: Mapping[str, Any] = {
    "job.list": Jobs,
    "job.show": WholeJob,
    "job.delete": DeletedJob,
    "job.trigger": Triggered,
    "job.runs": Runs,
    "job.next": Firings,
    **dict.fromkeys(("job.create", "job.update", "job.enable", "job.disable"), Job),
    "batch.list": Batches,
    "batch.show": Batch,
    "batch.cancel": CancelledBatch,
    "batch.retry": RetriedBatch,
    "batch.rollback": RolledBack,
    "batch.discard": Discarded,
    **dict.fromkeys(("batch.submit", "batch.open", "batch.load", "batch.start"), Submitted),
    "task.list": Tasks,
    "task.show": WholeTask,
    "task.schedule": Scheduled,
    "task.schedule_many": ScheduledMany,
    "task.reschedule": Rescheduled,
    "task.cancel": CancelledTask,
    "task.retry": RetriedTask,
    "worker.list": Workers,
    "queue.pause": Paused,
    "queue.resume": Paused,
    "queue.show": Paused,
    "handlers.list": Handlers,
    "handlers.show": Handler,
    "token.create": NewToken,
    "token.list": Tokens,
    "audit.list": Trail,
    "node.status": Status,
    "callback.receive": CalledBack,
}
"""By command. What is not here answers with some object."""
