"""The callback command."""

from typing import Any

import pytest

from drumline.domain.release import RunEnd, RunOutcome
from drumline.errors import BadToken, Conflict, WrongUse
from drumline.store.job import callbacks
from drumline.store.task import runs
from drumline.telemetry import metrics
from tests.store.job_world import JobWorld
from tests.store.stub_gateway import StubGateway
from tests.store.world import LIMITS, over


def refusals(code: str) -> float:
    return float(metrics.callbacks.labels(code)._value.get())


def test_callbacks_need_their_token_and_refusals_are_counted(
    gateway: StubGateway, world: JobWorld
) -> None:
    key, worker = callbacks.secret_key(world.database), world.keeper()
    task_id = world.one_shot()
    (due,) = world.acquire(worker, [task_id])
    token = callbacks.token_for(key, task_id, due.fence)

    def call_back(status: str, token: str = token, **values: Any) -> str:
        callback = {"status": status, **values}
        return str(
            gateway("callback.receive", task_id=task_id, token=token, callback=callback)["done"]
        )

    bad, late = refusals("BadToken"), refusals("Conflict")
    with pytest.raises(BadToken):
        call_back("success", "wrong")
    assert call_back("progress", message="half") == "noted"
    waiting = over(due, outcome=RunOutcome(RunEnd.WAITING, callback_timeout=60))
    world.release(worker, [waiting])
    assert call_back("success", result=7) == "done"
    with pytest.raises(Conflict):
        call_back("success")
    assert (refusals("BadToken"), refusals("Conflict")) == (bad + 1, late + 1)
    assert gateway("task.show", task_id=task_id)["result"] == {"answer": None, "callback": 7}
    for wrong in ({"status": "perhaps"}, {"status": "success", "more": 1}, {}):
        with pytest.raises(WrongUse, match="callback"):
            gateway("callback.receive", task_id=task_id, token=token, callback=wrong)


def test_an_early_callback_ends_the_run_when_it_waits(
    gateway: StubGateway, world: JobWorld
) -> None:
    """The run began to wait while the callback was being written."""
    key, worker = callbacks.secret_key(world.database), world.keeper()
    task_id = world.one_shot()
    (due,) = world.acquire(worker, [task_id])
    token = callbacks.token_for(key, task_id, due.fence)
    really = callbacks._note

    def meanwhile(*args: Any) -> None:
        really(*args)
        waiting = over(due, outcome=RunOutcome(RunEnd.WAITING, callback_timeout=60))
        runs.release_in(args[0], worker, [waiting], LIMITS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callbacks, "_note", meanwhile)
        callback = {"status": "success"}
        done = gateway("callback.receive", task_id=task_id, token=token, callback=callback)
    assert done["done"] == "kept"
    assert world.task(task_id).status == "success"
