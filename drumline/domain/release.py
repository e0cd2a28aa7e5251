"""The next state of a task whose run is over, decided in one place for keepers and the reaper."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from drumline.domain.policy import HandlerSpec, OnDeath, Retry
from drumline.domain.states import GIVEN_BACK, Cause, TaskState

INFO_LIMIT = 8 * 1024
RESULT_LIMIT = 64 * 1024
MAX_WAIT = 100 * 366 * 86400.0
"""Seconds. A longer delay would not fit into the column of `due_at`."""


class RunEnd(StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    DIED = "died"
    KILLED = "killed"
    GIVEN_BACK = "given_back"
    WAITING = "waiting"


class RunOutcome(msgspec.Struct, frozen=True):
    """The outcome of a run, as the runner or the keeper reports it."""

    end: RunEnd
    info: str | None = None
    result: str | None = None
    final: bool = False
    """A retry cannot succeed."""
    cause: Cause | None = None
    """A more specific cause than ERROR, if there is one."""
    callback_timeout: float = 0.0
    """Of a run that waits for a callback: the seconds until the callback is overdue."""
    retry_after: float = 0.0
    """Of an error: the minimum number of seconds before the next attempt."""


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that is over: the row as the keeper held it, the outcome, and the handler's policy."""

    id: int
    fence: int
    status: TaskState
    batch_id: int | None
    attempt: int
    retry_time: int
    failures: int
    deaths: int
    due_at: int
    outcome: RunOutcome
    handler: HandlerSpec
    worker: str
    retry: Retry | None = None
    """The task's own retry policy, which replaces that of its handler."""
    is_job_run: bool = False
    started_at: int | None = None


class RetryLimits(msgspec.Struct, frozen=True):
    """The settings that limit retries."""

    timeout_retries: int
    deaths_allowed: int


class ReleaseDecision(msgspec.Struct, frozen=True):
    """The next state of the row, with its counters."""

    status: TaskState
    cause: Cause | None
    info: str | None
    due_at: int | None
    """None: unchanged."""
    attempt: int
    retry_time: int
    failures: int
    deaths: int
    result: str | None = None

    @property
    def runs_again(self) -> bool:
        """The task runs again without an operator."""
        return self.status in (TaskState.PENDING, TaskState.ROLLBACK_PENDING)


def decide_release(
    run: FinishedRun,
    limits: RetryLimits,
    *,
    cancelled: bool,
    now: int,
    chance: float,
) -> ReleaseDecision:
    """Decide the next state. `cancelled`: an operator cancelled the task or its batch meanwhile."""
    outcome = run.outcome
    runnable = GIVEN_BACK[run.status]
    is_rollback = run.status is TaskState.ROLLBACK_RUNNING
    failed = TaskState.ROLLBACK_FAIL if is_rollback else TaskState.FAIL
    decision = ReleaseDecision(
        status=failed,
        cause=None,
        info=clip_info(outcome.info),
        due_at=None,
        attempt=run.attempt,
        retry_time=run.retry_time,
        failures=run.failures,
        deaths=run.deaths,
    )
    replace = msgspec.structs.replace
    if outcome.end is RunEnd.WAITING and is_rollback:
        outcome = RunOutcome(RunEnd.ERROR, final=True)
        decision = replace(decision, info="a rollback cannot wait for a callback")
    if outcome.end is RunEnd.GIVEN_BACK:
        # The run did not start, or was stopped for a reason outside the task: not an attempt.
        decision = replace(decision, attempt=run.attempt - 1)
    if cancelled or outcome.end is RunEnd.KILLED:
        return replace(decision, status=TaskState.CANCEL, cause=Cause.CANCELLED)
    match outcome.end:
        case RunEnd.SUCCESS:
            succeeded = TaskState.ROLLBACK_SUCCESS if is_rollback else TaskState.SUCCESS
            return replace(decision, status=succeeded, failures=0, result=outcome.result)
        case RunEnd.GIVEN_BACK:
            return replace(decision, status=runnable)
        case RunEnd.WAITING:
            return replace(
                decision,
                status=TaskState.WAITING_CALLBACK,
                due_at=_later(now, outcome.callback_timeout),
                result=outcome.result,
            )
        case RunEnd.TIMEOUT if not run.is_job_run:
            decision = replace(decision, cause=Cause.TIMEOUT)
            if run.retry_time < limits.timeout_retries:
                return replace(decision, status=runnable, retry_time=run.retry_time + 1, due_at=now)
            return decision
        case RunEnd.DIED:
            decision = replace(decision, cause=Cause.DIED, deaths=run.deaths + 1)
            if decision.deaths >= limits.deaths_allowed:
                return replace(decision, cause=Cause.QUARANTINED)
            if run.handler.on_death is OnDeath.RETRY:
                return replace(decision, status=runnable)
            if run.handler.on_death is OnDeath.CANCEL and not is_rollback:
                return replace(decision, status=TaskState.CANCEL)
            return decision
        case _:
            is_timeout = outcome.end is RunEnd.TIMEOUT
            cause = outcome.cause or (Cause.TIMEOUT if is_timeout else Cause.ERROR)
            failures = run.failures + 1
            decision = replace(decision, cause=cause, failures=failures, result=outcome.result)
            retry = run.retry or run.handler.retry
            if failures <= retry.retries and not outcome.final and retry.applies_to(cause):
                delay = max(retry.backoff(failures, chance), outcome.retry_after)
                return replace(decision, status=runnable, due_at=_later(now, delay))
            return decision


def _later(now: int, seconds: float) -> int:
    return now + int(min(seconds, MAX_WAIT) * 1e6)


def clip_info(info: str | None) -> str | None:
    """Keep the end of a long text: the last lines of a stack or an error are the most useful.

    Lone surrogates, as in a file name that is not UTF-8, are escaped: databases refuse them.
    """
    if info is None:
        return None
    data = info.encode(errors="backslashreplace")
    if len(data) > INFO_LIMIT:
        return "…" + data[-(INFO_LIMIT - 8) :].decode(errors="ignore")
    return data.decode()
