"""The decision at release, for generated runs and outcomes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.domain.policy import HandlerSpec, OnDeath, Retry
from drumline.domain.release import (
    INFO_LIMIT,
    FinishedRun,
    ReleaseDecision,
    RetryLimits,
    RunEnd,
    RunOutcome,
    clip_info,
    decide_release,
)
from drumline.domain.states import FINISHED, TRANSITIONS, Cause, TaskState

S = TaskState
NOW = 1_800_000_000_000_000
COLUMN = 2**63

retries = st.builds(
    Retry,
    retries=st.integers(0, 4),
    delay=st.floats(0, 1e12),
    factor=st.floats(1, 1e12),
    max_delay=st.floats(0.001, 1e300),
    jitter=st.floats(0, 1),
    causes=st.sampled_from([(), (Cause.ERROR,), (Cause.ERROR, Cause.TIMEOUT)]),
)
runs = st.builds(
    FinishedRun,
    id=st.just(1),
    fence=st.just(1),
    status=st.sampled_from([S.RUNNING, S.ROLLBACK_RUNNING]),
    batch_id=st.just(None),
    attempt=st.integers(1, 50),
    retry_time=st.integers(0, 5),
    failures=st.integers(0, 6),
    deaths=st.integers(0, 5),
    due_at=st.just(7),
    retry=st.none() | retries,
    is_job_run=st.booleans(),
    outcome=st.just(RunOutcome(RunEnd.SUCCESS)),
    handler=st.just(HandlerSpec("target", "type")),
    worker=st.just("worker-1"),
)
outcomes = st.builds(
    RunOutcome,
    end=st.sampled_from(RunEnd),
    info=st.sampled_from([None, "words"]),
    result=st.sampled_from([None, "1"]),
    final=st.booleans(),
    cause=st.none() | st.sampled_from(Cause),
    callback_timeout=st.floats(0, 1e300),
    retry_after=st.floats(0, 1e300),
)
specs = st.builds(
    HandlerSpec,
    target_type=st.just("target"),
    type=st.just("type"),
    retry=retries,
    on_death=st.sampled_from(OnDeath),
)
limits = st.builds(RetryLimits, timeout_retries=st.integers(0, 4), deaths_allowed=st.integers(1, 4))
cases = st.fixed_dictionaries(
    {
        "run": runs,
        "outcome": outcomes,
        "handler": specs,
        "limits": limits,
        "cancelled": st.booleans(),
        "chance": st.floats(0, 1),
    }
)


def decide(case: dict[str, Any], **changes: Any) -> ReleaseDecision:
    values = case | changes
    run = msgspec.structs.replace(
        values["run"], outcome=values["outcome"], handler=values["handler"]
    )
    return decide_release(
        run,
        values["limits"],
        cancelled=values["cancelled"],
        now=NOW,
        chance=values["chance"],
    )


def end(case: dict[str, Any], how: RunEnd) -> RunOutcome:
    outcome: RunOutcome = case["outcome"]
    return msgspec.structs.replace(outcome, end=how)


def batch_run(case: dict[str, Any]) -> FinishedRun:
    run: FinishedRun = case["run"]
    return msgspec.structs.replace(run, is_job_run=False)


@given(cases)
def test_every_decision_is_a_legal_transition_that_fits_into_its_columns(
    case: dict[str, Any],
) -> None:
    decision = decide(case)
    assert decision.status in TRANSITIONS[case["run"].status]
    assert decision.due_at is None or NOW <= decision.due_at < COLUMN
    assert decision.runs_again == (decision.status in (S.PENDING, S.ROLLBACK_PENDING))
    if decision.status in (S.FAIL, S.ROLLBACK_FAIL, S.CANCEL):
        assert decision.cause is not None


@given(cases)
def test_a_rollback_stays_a_rollback(case: dict[str, Any]) -> None:
    run = msgspec.structs.replace(case["run"], status=S.ROLLBACK_RUNNING)
    assert decide(case, run=run).status in (
        S.ROLLBACK_PENDING, S.ROLLBACK_SUCCESS, S.ROLLBACK_FAIL, S.CANCEL,
    )  # fmt: skip


@given(cases)
def test_a_cancelled_run_ends_in_cancel_whatever_its_outcome(case: dict[str, Any]) -> None:
    decision = decide(case, cancelled=True)
    assert (decision.status, decision.cause, decision.result) == (S.CANCEL, Cause.CANCELLED, None)
    killed = decide(case, outcome=end(case, RunEnd.KILLED))
    assert (killed.status, killed.cause) == (S.CANCEL, Cause.CANCELLED)


@given(cases)
def test_every_run_that_is_not_given_back_counts_as_an_attempt(case: dict[str, Any]) -> None:
    uncounted = case["outcome"].end is RunEnd.GIVEN_BACK
    assert decide(case).attempt == case["run"].attempt - uncounted


@given(cases)
def test_a_give_back_changes_only_state_and_attempt(case: dict[str, Any]) -> None:
    run: FinishedRun = case["run"]
    decision = decide(case, cancelled=False, outcome=RunOutcome(RunEnd.GIVEN_BACK))
    assert decision.status is (S.PENDING if run.status is S.RUNNING else S.ROLLBACK_PENDING)
    assert (decision.cause, decision.due_at) == (None, None)
    assert (decision.retry_time, decision.failures, decision.deaths) == (
        run.retry_time, run.failures, run.deaths,
    )  # fmt: skip


@given(cases)
def test_a_result_is_kept_only_of_runs_that_ended_by_themselves(case: dict[str, Any]) -> None:
    """Of runs that succeeded, failed or wait; not of runs that were cancelled or given back."""
    decision = decide(case)
    if decision.result is not None:
        if decision.cause is None:
            assert decision.status in (S.SUCCESS, S.ROLLBACK_SUCCESS, S.WAITING_CALLBACK)
        else:
            assert case["outcome"].end in (RunEnd.ERROR, RunEnd.TIMEOUT)
            assert decision.status is not S.CANCEL


@given(cases)
def test_success_resets_the_failures_in_a_row(case: dict[str, Any]) -> None:
    decision = decide(case, cancelled=False, outcome=end(case, RunEnd.SUCCESS))
    assert decision.status in (S.SUCCESS, S.ROLLBACK_SUCCESS)
    assert (decision.failures, decision.result) == (0, case["outcome"].result)


def decisions_until_finished(
    case: dict[str, Any], run: FinishedRun, how: RunEnd
) -> list[ReleaseDecision]:
    """Repeat the run with the same end."""
    decisions = []
    while True:
        decision = decide(case, run=run, outcome=end(case, how), cancelled=False)
        decisions.append(decision)
        if decision.status in FINISHED:
            return decisions
        assert len(decisions) < 100, "it never ends"
        run = msgspec.structs.replace(
            run,
            attempt=decision.attempt + 1,
            retry_time=decision.retry_time,
            failures=decision.failures,
            deaths=decision.deaths,
        )


@given(cases)
def test_a_timeout_of_a_batch_task_is_retried_timeout_retries_times(case: dict[str, Any]) -> None:
    run = msgspec.structs.replace(batch_run(case), retry_time=0)
    decisions = decisions_until_finished(case, run, RunEnd.TIMEOUT)
    allowed = case["limits"].timeout_retries
    assert len(decisions) == allowed + 1
    assert [decision.due_at for decision in decisions] == [NOW] * allowed + [None]
    assert {decision.cause for decision in decisions} == {Cause.TIMEOUT}
    assert decisions[-1].failures == run.failures


@given(cases)
def test_a_task_is_quarantined_after_deaths_allowed(case: dict[str, Any]) -> None:
    run = msgspec.structs.replace(case["run"], deaths=0)
    decisions = decisions_until_finished(case, run, RunEnd.DIED)
    allowed = case["limits"].deaths_allowed
    if case["handler"].on_death is OnDeath.RETRY:
        assert len(decisions) == allowed
    else:
        assert len(decisions) == 1
    assert [decision.deaths for decision in decisions] == list(range(1, len(decisions) + 1))
    quarantined = len(decisions) == allowed
    assert decisions[-1].cause is (Cause.QUARANTINED if quarantined else Cause.DIED)
    assert decisions[-1].failures == run.failures, "a death is not a failure"


@given(cases)
def test_an_error_is_retried_as_often_as_its_policy_says(case: dict[str, Any]) -> None:
    run = msgspec.structs.replace(case["run"], failures=0)
    decisions = decisions_until_finished(case, run, RunEnd.ERROR)
    retry = run.retry or case["handler"].retry
    cause = case["outcome"].cause or Cause.ERROR
    retried = retry.retries if retry.applies_to(cause) and not case["outcome"].final else 0
    assert len(decisions) == retried + 1
    assert [decision.failures for decision in decisions] == list(range(1, retried + 2))
    assert {decision.retry_time for decision in decisions} == {run.retry_time}


@given(cases, retries)
def test_the_retry_policy_of_a_task_precedes_that_of_its_handler(
    case: dict[str, Any], own: Retry
) -> None:
    run = msgspec.structs.replace(case["run"], retry=own)
    other = msgspec.structs.replace(case["handler"], retry=Retry(retries=9, delay=77))
    assert decide(case, run=run, handler=other) == decide(case, run=run)


@pytest.mark.parametrize(
    ("choice", "status"),
    [(OnDeath.RETRY, S.PENDING), (OnDeath.FAIL, S.FAIL), (OnDeath.CANCEL, S.CANCEL)],
)
def test_on_death_decides_what_follows_a_death(choice: OnDeath, status: S) -> None:
    spec = HandlerSpec("target", "type", on_death=choice)
    run = FinishedRun(
        1, 1, S.RUNNING, None, 1, 0, 0, 0, 0, RunOutcome(RunEnd.DIED), spec, "worker-1"
    )
    decision = decide_release(run, RetryLimits(2, 3), cancelled=False, now=NOW, chance=0.5)
    assert (decision.status, decision.cause) == (status, Cause.DIED)


# --- backoff -----------------------------------------------------------------------------------


@given(
    retry=retries,
    failures=st.integers(0, 10**6) | st.sampled_from([65, 1025, 2**31]),
    chance=st.floats(0, 1),
)
def test_backoff_is_within_its_bounds(retry: Retry, failures: int, chance: float) -> None:
    seconds = retry.backoff(failures, chance)
    assert 0 <= seconds <= retry.max_delay * (1 + retry.jitter) * (1 + 1e-9)
    first = min(retry.delay, retry.max_delay)
    assert seconds >= first * (1 - retry.jitter) * (1 - 1e-9)


@given(retry=retries, failures=st.integers(1, 3000))
def test_backoff_grows_up_to_max_delay(retry: Retry, failures: int) -> None:
    assert retry.backoff(failures + 1, 0.5) >= retry.backoff(failures, 0.5)


def test_backoff_doubles_by_default() -> None:
    retry = Retry(retries=20, jitter=0)
    waits = [retry.backoff(failures, 0.3) for failures in range(1, 13)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]


def test_jitter_varies_the_delay_in_both_directions() -> None:
    retry = Retry(delay=100, jitter=0.25)
    assert [retry.backoff(1, chance) for chance in (0.0, 0.5, 1.0)] == [75, 100, 125]


@pytest.mark.parametrize(("asked", "seconds"), [(0, 8), (3, 8), (30, 30)])
def test_retry_after_can_lengthen_the_delay(asked: float, seconds: int) -> None:
    spec = HandlerSpec("target", "type", retry=Retry(retries=1, delay=8, jitter=0))
    outcome = RunOutcome(RunEnd.ERROR, retry_after=asked)
    run = FinishedRun(1, 1, S.RUNNING, None, 1, 0, 0, 0, 0, outcome, spec, "worker-1")
    decision = decide_release(run, RetryLimits(2, 3), cancelled=False, now=NOW, chance=0.5)
    assert decision.due_at == NOW + seconds * 1_000_000


# --- clipping of info --------------------------------------------------------------------------

half_characters = st.text(st.characters(codec=None))


@given(half_characters.map(lambda text: text * 50) | half_characters)
def test_clip_never_exceeds_its_limit_and_cuts_between_characters(text: str) -> None:
    clipped = clip_info(text)
    assert clipped is not None
    data = clipped.encode()  # fails on lone surrogates, which no database accepts
    assert len(data) <= INFO_LIMIT
    whole = text.encode(errors="backslashreplace").decode()
    if len(whole.encode()) <= INFO_LIMIT:
        assert clipped == whole
    else:
        assert clipped[0] == "…"
        assert whole.endswith(clipped[1:])
        assert len(data) > INFO_LIMIT - 16, "more was cut than necessary"


@pytest.mark.parametrize("letter", ["x", "é", "€", "🥁"])
@pytest.mark.parametrize("more", range(-4, 5))
def test_clip_around_its_limit(letter: str, more: int) -> None:
    text = "y" * (more % 4) + letter * ((INFO_LIMIT + more) // len(letter.encode()))
    clipped = clip_info(text)
    assert clipped is not None
    if len(text.encode()) <= INFO_LIMIT:
        assert clipped == text
    else:
        assert len(clipped.encode()) <= INFO_LIMIT
        assert set(clipped[1:]) <= {letter, "y"}


def test_an_empty_info_is_unchanged() -> None:
    assert clip_info(None) is None
    assert clip_info("") == ""
