"""What becomes of a task when its run is over: one pure decision for keepers and the reaper."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from drumline.domain.policy import HandlerSpec, OnDeath, Retry
from drumline.domain.states import GIVEN_BACK, Cause, TaskState

INFO_LIMIT = 8 * 1024
RESULT_LIMIT = 64 * 1024
MAX_WAIT = 100 * 366 * 86400.0
"""Seconds. Whatever a policy asks for, the time must fit into a column."""


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
    """What the run itself says."""

    end: RunEnd
    info: str | None = None
    result: str | None = None
    final: bool = False
    """An error that no retry would mend."""
    cause: Cause | None = None
    """Of an error: why, if there is more to say than that it is one."""
    callback_timeout: float = 0.0
    """Seconds that a run waits for its callback."""
    retry_after: float = 0.0
    """Seconds before an error is retried, at least."""


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that is over: the row as the keeper held it, the outcome, and its handler's policy."""

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
    """The task's own retry policy, in place of its handler's."""
    is_job_run: bool = False
    started_at: int | None = None


class RetryLimits(msgspec.Struct, frozen=True):
    """The settings that bear on a verdict."""

    timeout_retries: int
    deaths_allowed: int


class ReleaseDecision(msgspec.Struct, frozen=True):
    """The row's next state, and the counts that go with it."""

    status: TaskState
    cause: Cause | None
    info: str | None
    due_at: int | None
    """None: as it was."""
    attempt: int
    retry_time: int
    failures: int
    deaths: int
    result: str | None = None

    @property
    def runs_again(self) -> bool:
        """The task will run again by itself."""
        return self.status in (TaskState.PENDING, TaskState.ROLLBACK_PENDING)


def decide_release(
    run: FinishedRun,
    limits: RetryLimits,
    *,
    cancelled: bool,
    now: int,
    chance: float,
) -> ReleaseDecision:
    """Decide. `cancelled`: an operator cancelled the task or its batch meanwhile."""
    outcome = run.outcome
    back = GIVEN_BACK[run.status]
    rolling = run.status is TaskState.ROLLBACK_RUNNING
    failed = TaskState.ROLLBACK_FAIL if rolling else TaskState.FAIL
    verdict = ReleaseDecision(
        status=failed,
        cause=None,
        info=clip_info(outcome.info),
        due_at=None,
        attempt=run.attempt,
        retry_time=run.retry_time,
        failures=run.failures,
        deaths=run.deaths,
    )
    change = msgspec.structs.replace
    if outcome.end is RunEnd.WAITING and rolling:
        outcome = RunOutcome(RunEnd.ERROR, final=True)
        verdict = change(verdict, info="a rollback cannot wait for a callback")
    if outcome.end is RunEnd.GIVEN_BACK:
        # It did not start, or was stopped through no fault of its own: no attempt counted.
        verdict = change(verdict, attempt=run.attempt - 1)
    if cancelled or outcome.end is RunEnd.KILLED:
        return change(verdict, status=TaskState.CANCEL, cause=Cause.CANCELLED)
    match outcome.end:
        case RunEnd.SUCCESS:
            succeeded = TaskState.ROLLBACK_SUCCESS if rolling else TaskState.SUCCESS
            return change(verdict, status=succeeded, failures=0, result=outcome.result)
        case RunEnd.GIVEN_BACK:
            return change(verdict, status=back)
        case RunEnd.WAITING:
            return change(
                verdict,
                status=TaskState.WAITING_CALLBACK,
                due_at=_later(now, outcome.callback_timeout),
                result=outcome.result,
            )
        case RunEnd.TIMEOUT if not run.is_job_run:
            verdict = change(verdict, cause=Cause.TIMEOUT)
            if run.retry_time < limits.timeout_retries:
                return change(verdict, status=back, retry_time=run.retry_time + 1, due_at=now)
            return verdict
        case RunEnd.DIED:
            verdict = change(verdict, cause=Cause.DIED, deaths=run.deaths + 1)
            if verdict.deaths >= limits.deaths_allowed:
                return change(verdict, cause=Cause.QUARANTINED)
            if run.handler.on_death is OnDeath.RETRY:
                return change(verdict, status=back)
            if run.handler.on_death is OnDeath.CANCEL and not rolling:
                return change(verdict, status=TaskState.CANCEL)
            return verdict
        case _:
            timed_out = outcome.end is RunEnd.TIMEOUT
            cause = outcome.cause or (Cause.TIMEOUT if timed_out else Cause.ERROR)
            verdict = change(verdict, cause=cause, failures=run.failures + 1, result=outcome.result)
            retry = run.retry or run.handler.retry
            if verdict.failures <= retry.retries and not outcome.final and retry.applies_to(cause):
                delay = max(retry.backoff(verdict.failures, chance), outcome.retry_after)
                return change(verdict, status=back, due_at=_later(now, delay))
            return verdict


def _later(now: int, seconds: float) -> int:
    return now + int(min(seconds, MAX_WAIT) * 1e6)


def clip_info(info: str | None) -> str | None:
    """Keep the end of a long text: of a stack or an error the last lines say most.

    A text from elsewhere may hold half characters (a file's name, say) that no database takes.
    """
    if info is None:
        return None
    data = info.encode(errors="backslashreplace")
    if len(data) > INFO_LIMIT:
        return "…" + data[-(INFO_LIMIT - 8) :].decode(errors="ignore")
    return data.decode()
