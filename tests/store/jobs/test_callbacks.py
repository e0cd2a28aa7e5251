"""Callbacks: one token an attempt, used once; the early are kept, and the missing are told."""

import json
from typing import Any

import msgspec
import pytest

from drumline.domain.jobs.callback import Callback
from drumline.domain.policy import Retry
from drumline.domain.release import RunEnd, RunOutcome
from drumline.domain.states import BatchOperation, Phase
from drumline.errors import BadToken, Conflict, WrongUse
from drumline.store.job import callbacks
from drumline.store.task import runs
from drumline.store.tx import RaceLost
from tests.store.job_world import JobWorld
from tests.store.world import LIMITS, REGION, at_once, over, while_open

RETRIES = Retry(retries=1, delay=0)


class Run:
    """An async run: in the hands of a worker, then waiting."""

    def __init__(self, world: JobWorld, *, retry: Retry | None = None, **values: Any) -> None:
        self.world = world
        self.key = callbacks.secret_key(world.database)
        self.worker = world.keeper()
        text = None if retry is None else msgspec.json.encode(retry).decode()
        self.id = world.one_shot(retry=text, **values)
        self.start()

    def start(self) -> None:
        (self.due,) = self.world.acquire(self.worker, [self.id])
        self.token = callbacks.token_for(self.key, self.id, self.due.fence)

    def wait(self, seconds: float = 60.0) -> None:
        """The first call was answered: from now on it waits."""
        outcome = RunOutcome(RunEnd.WAITING, result='{"status_code":202}', callback_timeout=seconds)
        ended = over(self.due, outcome=outcome, retry=self.due.retry)
        assert self.world.release(self.worker, [ended]) == []

    def fail(self) -> None:
        ended = over(self.due, RunEnd.ERROR, retry=self.due.retry)
        assert self.world.release(self.worker, [ended]) == []

    def call_back(self, status: str = "success", token: str | None = None, **values: Any) -> str:
        callback = msgspec.convert({"status": status, **values}, Callback)
        token = self.token if token is None else token
        while True:
            try:
                return self.world.write(
                    lambda tx: callbacks.receive(tx, REGION, self.id, token, callback, LIMITS)
                )
            except RaceLost:
                continue

    def settle(self) -> None:
        callbacks.apply_kept(self.world.database, [self.id], LIMITS)

    def expire(self) -> int:
        return callbacks.expire(self.world.database, REGION, LIMITS)

    @property
    def status(self) -> str:
        return str(self.world.task(self.id).status)


def test_success_ends_the_run_and_keeps_both_answers(world: JobWorld) -> None:
    run = Run(world)
    run.wait()
    assert run.status == "waiting_callback"
    assert run.call_back(result={"rows": 7}, message="done") == "done"
    assert (run.status, world.task(run.id).info) == ("success", "done")
    assert json.loads(world.result(run.id) or "") == {
        "answer": {"status_code": 202},
        "callback": {"rows": 7},
    }
    world.check_laws()


def test_without_a_result_of_its_own_the_first_answer_stays(world: JobWorld) -> None:
    run = Run(world)
    run.wait()
    run.call_back()
    assert json.loads(world.result(run.id) or "") == {"status_code": 202}


def test_failure_is_retried_as_the_policy_says(world: JobWorld) -> None:
    run = Run(world, retry=RETRIES)
    run.wait()
    run.call_back("failure", message="no space")
    row = world.task(run.id)
    assert (row.status, row.cause, row.info, row.owner) == ("pending", "error", "no space", 0)
    run.start()
    run.wait()
    run.call_back("failure")
    assert (run.status, world.task(run.id).info) == ("fail", "the target reported a failure")
    assert [tried.worker for tried in world.attempts(run.id)] == ["callback", "callback"]


def test_progress_is_noted_and_ends_nothing(world: JobWorld) -> None:
    run = Run(world)
    run.wait()
    assert run.call_back("progress", message="half way") == "noted"
    assert (run.status, world.task(run.id).info) == ("waiting_callback", "half way")
    assert run.call_back("progress", result={"percent": 80}) == "noted"
    assert world.task(run.id).info == '{"percent":80}'
    assert run.call_back() == "done"


# --- refused -------------------------------------------------------------------------------------


def test_a_wrong_token_is_refused_and_learns_nothing(world: JobWorld) -> None:
    run = Run(world)
    run.wait()
    other = Run(world)
    for token in ("", "x", "ü" * 64, run.token[:-1], run.token.upper(), other.token):
        with pytest.raises(BadToken):
            run.call_back(token=token)
    assert run.status == "waiting_callback"
    run.id = 10**9
    with pytest.raises(BadToken):
        run.call_back(token=callbacks.token_for(run.key, 10**9, 0))


def test_a_token_works_once(world: JobWorld) -> None:
    run = Run(world)
    run.wait()
    run.call_back()
    for status in ("success", "failure", "progress"):
        with pytest.raises(Conflict, match="is success; it waits for no callback"):
            run.call_back(status)


def test_a_token_of_another_attempt_is_refused(world: JobWorld) -> None:
    run = Run(world, retry=RETRIES)
    run.wait()
    old = run.token
    run.call_back("failure")
    with pytest.raises(Conflict, match="is pending; it waits for no callback"):
        run.call_back()
    run.start()
    run.wait()
    with pytest.raises(BadToken):
        run.call_back(token=old)
    assert run.status == "waiting_callback"


def test_a_token_of_another_region_is_refused(world: JobWorld) -> None:
    run = Run(world)
    run.wait()
    with pytest.raises(BadToken):
        world.write(
            lambda tx: callbacks.receive(
                tx, "elsewhere", run.id, run.token, Callback("success"), LIMITS
            )
        )


def test_of_many_at_once_one_counts(world: JobWorld) -> None:
    run = Run(world)
    run.wait()

    def call_back() -> str:
        try:
            return run.call_back()
        except Conflict:
            return "refused"

    answers = at_once(call_back, call_back, call_back, call_back)
    assert sorted(answers) == ["done", "refused", "refused", "refused"]
    world.check_laws()


def test_what_is_too_large_is_refused_by_its_name(world: JobWorld) -> None:
    run = Run(world)
    run.wait()
    with pytest.raises(WrongUse, match="result: it has more than"):
        run.call_back(result="x" * 70_000)
    with pytest.raises(WrongUse, match="message: it has more than"):
        run.call_back(message="x" * 9_000)
    assert run.call_back(result="x" * 63_000) == "done"
    assert len(world.result(run.id) or "") <= 64 * 1024


# --- early ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["success", "failure"])
def test_what_comes_early_is_kept_and_counts(world: JobWorld, status: str) -> None:
    run = Run(world)
    assert run.call_back(status, result=1) == "kept"
    assert run.status == "running"
    run.settle()
    assert run.status == "running", "not before it waits"
    with pytest.raises(Conflict, match="has had its callback already"):
        run.call_back("success")
    run.wait()
    run.settle()
    assert run.status == {"success": "success", "failure": "fail"}[status]
    assert json.loads(world.result(run.id) or "")["callback"] == 1
    assert world.task(run.id).callback is None
    world.check_laws()


def test_the_reaper_settles_what_a_dead_keeper_left(world: JobWorld) -> None:
    """The keeper died between the release and the look for early callbacks."""
    run = Run(world)
    run.call_back()
    run.wait(seconds=3600)
    assert run.expire() == 0
    assert run.status == "success"


def test_a_callback_at_the_very_moment_of_the_release(world: JobWorld) -> None:
    """It was read as running and waits when the callback is written; then the gateway dies."""
    run = Run(world)

    def call_back() -> str:
        return run.call_back()

    ended = [over(run.due, outcome=RunOutcome(RunEnd.WAITING, callback_timeout=3600))]
    answer = while_open(
        world.database, lambda tx: runs.release_in(tx, run.worker, ended, LIMITS), call_back
    )
    if answer == "kept":
        run.expire()
    assert run.status == "success"


def test_an_early_callback_does_not_count_for_the_next_attempt(world: JobWorld) -> None:
    run = Run(world, retry=RETRIES)
    assert run.call_back() == "kept"
    run.fail()
    assert world.task(run.id).callback is None
    run.start()
    run.wait()
    run.settle()
    run.expire()
    assert run.status == "waiting_callback"


def test_a_worker_that_died_takes_the_early_callback_with_it(world: JobWorld) -> None:
    run = Run(world)
    run.call_back()
    world.die(run.worker)
    world.give_back(run.worker)
    assert (run.status, world.task(run.id).callback) == ("pending", None)


# --- late ----------------------------------------------------------------------------------------


def test_past_its_time_it_fails(world: JobWorld) -> None:
    run = Run(world)
    run.wait(seconds=60)
    world.clock.at(59)
    assert run.expire() == 0
    world.clock.at(60)
    assert run.expire() == 1
    row = world.task(run.id)
    assert (row.status, row.cause, row.info) == (
        "fail", "callback_timeout", "no callback came in time",
    )  # fmt: skip
    with pytest.raises(Conflict, match="is fail"):
        run.call_back()
    assert run.expire() == 0
    world.check_laws()


def test_past_its_time_it_is_tried_again_if_the_policy_says_so(world: JobWorld) -> None:
    run = Run(world, retry=RETRIES)
    run.wait(seconds=60)
    never = Run(world, retry=Retry(retries=5, causes=("error",)))
    never.wait(seconds=60)
    world.clock.at(61)
    assert run.expire() == 2
    assert (run.status, never.status) == ("pending", "fail")


def test_of_expiry_and_callback_one_wins(world: JobWorld) -> None:
    run = Run(world)
    run.wait(seconds=60)
    world.clock.at(60)

    def call_back() -> str:
        try:
            return run.call_back()
        except Conflict:
            return "refused"

    def expire() -> str:
        return "expired" if run.expire() else "nothing"

    answers = at_once(call_back, expire)
    if run.status == "success":
        assert answers == ["done", "nothing"]
    else:
        assert (answers, run.status) == (["refused", "expired"], "fail")
    world.check_laws()


def test_many_expire_in_one_commit_in_every_priority(world: JobWorld) -> None:
    waiting = [Run(world, priority=n % 10) for n in range(20)]
    for run in waiting:
        run.wait(seconds=1 + run.id % 3)
    world.clock.at(5)
    assert waiting[0].expire() == 20
    assert {run.status for run in waiting} == {"fail"}


def test_a_task_of_a_batch_waits_too_and_a_cancel_ends_it(world: JobWorld) -> None:
    batch_id, (first, second) = world.batch(2)
    key, worker = callbacks.secret_key(world.database), world.keeper()
    dues = world.acquire(worker, [first, second])
    waiting = [over(due, outcome=RunOutcome(RunEnd.WAITING, callback_timeout=60)) for due in dues]
    world.release(worker, waiting)
    token = callbacks.token_for(key, first, dues[0].fence)
    world.write(lambda tx: callbacks.receive(tx, REGION, first, token, Callback("success"), LIMITS))
    world.check_laws()
    world.run_operation(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    assert world.statuses(batch_id) == ["success", "cancel"]
    world.check_laws()


def test_the_key_is_made_once(world: JobWorld) -> None:
    keys = at_once(*(lambda: callbacks.secret_key(world.database) for _ in range(4)))
    assert len(set(keys)) == 1 and len(keys[0]) == 32
