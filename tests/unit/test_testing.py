"""`drumline.testing` runs a handler the way a worker does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drumline import Change, Handler, Task, handler
from drumline.domain.task import BatchInfo
from drumline.errors import WrongUse
from drumline.handlers import demo, registry
from drumline.testing import run


class Zone(Handler):
    target_type = "zone"
    types = ("zone.set", "zone.clear")
    state: dict[str, Any]

    def __init__(self) -> None:
        self.state = {"db-1": "a"}

    def build_param(self, task: Task) -> Change:
        return Change({"az": self.state.get(task.target_id or "")}, task.param)

    def is_finished(self, task: Task) -> bool:
        return bool(self.state.get(task.target_id or "") == task.after_update["az"])

    def process(self, task: Task) -> Any:
        self.state[task.target_id or ""] = task.param["az"]
        return {"type": task.type, "attempt": task.attempt}

    def rollback(self, task: Task) -> None:
        self.state[task.target_id or ""] = task.before_update["az"]


def test_a_plain_function_needs_no_registration() -> None:
    def send(task: Task) -> Any:
        return {"to": task.param["to"], "attempt": task.attempt, "fence": task.fence}

    outcome = run(send, {"to": "a@b.c"}, attempt=2, fence=7)
    assert outcome.result == {"to": "a@b.c", "attempt": 2, "fence": 7}
    assert outcome.steps == ("is_finished", "process")


def test_a_decorated_function_has_its_registered_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "registry", registry.Registry())
    monkeypatch.setattr("drumline.testing.registry", registry.registry)

    @handler("mail.send", target_type="mail")
    def send(task: Task) -> Any:
        return [task.type, task.target_type]

    assert run(send).result == ["mail.send", "mail"]
    assert run("mail.send").result == ["mail.send", "mail"]
    assert run("mail.send", target_type="mail").result == ["mail.send", "mail"]
    with pytest.raises(WrongUse, match=r"0 handlers are registered for type 'mail\.fetch'"):
        run("mail.fetch")


def test_a_handler_can_be_named_by_its_type() -> None:
    assert run("demo.echo", [1, 2]).result == [1, 2]
    assert run(demo.echo, [1, 2]).result == [1, 2]


def test_an_async_handler_is_awaited() -> None:
    async def send(task: Task) -> Any:
        await asyncio.sleep(0)
        return task.param

    assert run(send, 3).result == 3


def test_inside_a_running_loop_the_error_says_what_to_do() -> None:
    async def send(task: Task) -> None: ...

    async def main() -> Any:
        with pytest.raises(WrongUse, match=r"asyncio\.to_thread"):
            run(send)
        return await asyncio.to_thread(run, send, 1)

    assert asyncio.run(main()).ok


def test_a_class_goes_through_all_steps_and_can_be_rolled_back() -> None:
    zone = Zone()
    done = run(zone, {"az": "b"}, target_id="db-1")
    assert done.steps == ("build_param", "is_finished", "process")
    assert (done.before, done.after) == ({"az": "a"}, {"az": "b"})
    assert done.result == {"type": "zone.set", "attempt": 1}
    assert zone.state == {"db-1": "b"}

    undone = run(zone, {"az": "b"}, target_id="db-1", rollback=True, before_update=done.before)
    assert undone.steps == ("rollback",)
    assert zone.state == {"db-1": "a"}


def test_the_steps_show_that_a_task_was_finished_already() -> None:
    outcome = run(Zone, {"az": "a"}, target_id="db-1")
    assert outcome.steps == ("build_param", "is_finished")
    assert outcome.ok


def test_a_second_attempt_keeps_the_first_capture() -> None:
    zone = Zone()
    zone.state["db-1"] = "half"
    again = run(
        zone,
        {"az": "b"},
        target_id="db-1",
        attempt=2,
        before_update={"az": "a"},
        after_update={"az": "b"},
    )
    assert "build_param" not in again.steps
    assert again.before == {"az": "a"}


def test_the_type_selects_one_of_a_class_handlers_types() -> None:
    assert run(Zone, {"az": "b"}, type="zone.clear").result["type"] == "zone.clear"
    with pytest.raises(WrongUse, match=r"does not serve type 'zone.drop', but zone.set, zone.cl"):
        run(Zone, type="zone.drop")


def test_param_and_result_go_through_json_as_in_production() -> None:
    def keys(task: Task) -> Any:
        return {"got": task.param, "again": (1, 2)}

    assert run(keys, {1: ("a", "b")}).result == {"got": {"1": ["a", "b"]}, "again": [1, 2]}
    with pytest.raises(WrongUse, match="param does not fit into JSON"):
        run(keys, object())
    with pytest.raises(WrongUse, match="the handler's return value does not fit into JSON"):
        run(lambda task: object())


def test_errors_are_raised_or_returned() -> None:
    def fails(task: Task) -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        run(fails)
    outcome = run(fails, catch=True)
    assert not outcome.ok
    assert isinstance(outcome.error, LookupError)
    assert outcome.steps == ("is_finished", "process")


def test_the_outcome_has_the_capture_made_before_an_error() -> None:
    class Breaks(Zone):
        def process(self, task: Task) -> Any:
            raise RuntimeError("half done")

    outcome = run(Breaks, {"az": "b"}, target_id="db-1", catch=True)
    assert (outcome.before, outcome.ok) == ({"az": "a"}, False)


def test_a_rollback_that_production_would_refuse_is_refused() -> None:
    with pytest.raises(WrongUse, match="has no rollback method"):
        run("demo.noop", rollback=True)


def test_a_handler_that_production_would_refuse_is_refused() -> None:
    class Mixed(Zone):
        async def process(self, task: Task) -> Any: ...

    with pytest.raises(WrongUse, match="async def"):
        run(Mixed)


def test_the_task_has_the_batch_that_was_passed() -> None:
    def which(task: Task) -> Any:
        assert task.batch is not None
        return [task.batch.name, task.batch.extra_info, task.env, task.batch_id]

    batch = BatchInfo(
        id=7, name="june", batch_type="t", target_type="t", env="prod", extra_info={"a": 1}
    )
    assert run(which, batch=batch).result == ["june", {"a": 1}, "prod", 7]
