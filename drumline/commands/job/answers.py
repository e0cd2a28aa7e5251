"""What the job commands answer with."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.fields import from_json, iso
from drumline.domain.jobs.catch_up import CatchUpMode
from drumline.domain.jobs.firing import ConcurrencyPolicy, FailureAction, OverlapAction
from drumline.domain.states import Cause, TaskState
from drumline.handlers.http.call import ExecType
from drumline.masking import MASK, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.domain.jobs.schedule import Schedule
    from drumline.store.job.firings import LatestRunRow
    from drumline.store.rows import JobRow
    from drumline.store.tx import Tx

LISTED_FIRINGS = 5


class LastRunSummary(Answer, frozen=True, kw_only=True):
    """The latest run of a job."""

    id: int
    status: TaskState
    cause: Cause | None
    scheduled_at: Moment
    finished_at: Moment | None


class JobSummary(Answer, frozen=True, kw_only=True):
    """A job. Secrets in its headers are masked."""

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
    last_run: LastRunSummary | None


class JobDetail(JobSummary, frozen=True, kw_only=True):
    """A job with its next firings and the number of its unfinished runs."""

    next_firings: list[Moment]
    runs_under_way: int
    runs_queued: int
    """Firings that wait because of the job's concurrency limit."""


class JobPage(Answer, frozen=True, kw_only=True):
    """A page of jobs, the newest first."""

    jobs: list[JobSummary]
    next: int | None
    """The `before` of the next page."""


def summarise_job(tx: Tx, row: JobRow) -> JobSummary:
    return JobSummary(**_summary_fields(tx, row))


def describe_job(tx: Tx, row: JobRow) -> JobDetail:
    earlier = store.decisions.earlier_of(tx, [row])[row.id]
    return JobDetail(
        **_summary_fields(tx, row),
        next_firings=[iso(at) for at in islice(_next_firings(tx, row), LISTED_FIRINGS)],
        runs_under_way=len(earlier.active),
        runs_queued=len(earlier.queued),
    )


def _summary_fields(tx: Tx, row: JobRow) -> dict[str, Any]:
    is_call = row.target_url is not None
    last = store.firings.last_runs(tx, [row.id]).get(row.id)
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "status": row.status,
        "cron_expr": row.cron_expr,
        "timezone": row.timezone,
        "starts_at": iso(row.starts_at),
        "ends_at": iso(row.ends_at),
        "jitter_seconds": row.jitter_seconds,
        "exec_type": row.exec_type,
        "http_method": row.http_method,
        "target_url": row.target_url,
        "headers_json": _mask_headers(row.headers_json),
        "body_template": row.body_template,
        "type": row.type,
        "target_type": row.target_type,
        "param": None if is_call else from_json(row.param),
        "timeout_seconds": row.timeout_seconds,
        "retry_policy_json": row.retry_policy_json,
        "max_concurrency": row.max_concurrency,
        "concurrency_policy": row.concurrency_policy,
        "overlap_action": row.overlap_action,
        "failure_action": row.failure_action,
        "catch_up_mode": row.catch_up_mode,
        "misfire_grace_seconds": row.misfire_grace_seconds,
        "callback_method": row.callback_method,
        "callback_timeout_sec": row.callback_timeout_sec,
        "priority": row.priority,
        "env": row.env,
        "region": row.region,
        "version": row.version,
        "deleted": bool(row.deleted),
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "next_firing": iso(next(_next_firings(tx, row), None)),
        "last_run": None if last is None else _describe_last_run(last),
    }


def _next_firings(tx: Tx, row: JobRow) -> Iterator[int]:
    """The times at which a job fires next.

    Of a job that fires a delay after its runs, only the planned firing is known.
    """
    if row.status != store.jobs.ENABLED or row.deleted:
        return
    if not row.by_clock:
        yield from store.jobs.next_planned(tx, [row.id]).values()
        return
    yield from firings_after(store.jobs.schedule_of(row), tx.now)


def firings_after(schedule: Schedule, after: int) -> Iterator[int]:
    """The times at which a schedule fires by the clock."""
    at = schedule.next_after(after)
    while at is not None:
        yield at
        at = schedule.next_after(at)


def _describe_last_run(row: LatestRunRow) -> LastRunSummary:
    return LastRunSummary(
        id=row.id,
        status=row.status,
        cause=row.cause,
        scheduled_at=iso(row.scheduled_at),
        finished_at=iso(row.finished_at or None),
    )


def _mask_headers(headers_json: str | None) -> str | None:
    if headers_json is None:
        return None
    headers: dict[str, str] = msgspec.json.decode(headers_json)
    masked = {name: MASK if is_secret_name(name) else value for name, value in headers.items()}
    return msgspec.json.encode(masked).decode()
