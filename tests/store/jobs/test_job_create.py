"""Creating jobs."""

import json
from typing import Any

import pytest

from drumline.errors import Conflict, WrongUse
from tests.store.job_samples import SAMPLE, TASK
from tests.store.job_world import JobWorld
from tests.store.stub_gateway import StubGateway
from tests.store.world import SPEC, not_none


def test_the_documented_sample_creates_a_job(gateway: StubGateway, world: JobWorld) -> None:
    made = gateway("job.create", **SAMPLE)
    assert gateway.notifications == 1, "the ticker is notified"
    shown = gateway("job.show", job="sample")
    assert made.items() <= shown.items()
    assert {k: v for k, v in SAMPLE.items() if k != "headers_json"}.items() <= shown.items()
    assert json.loads(shown["headers_json"]) == {
        "Content-Type": "application/json",
        "Authorization": "***",
    }
    defaults = {
        "timezone": "UTC", "status": "ENABLED", "catch_up_mode": "NONE", "version": 1,
        "deleted": False, "jitter_seconds": 0, "starts_at": None, "ends_at": None,
    }  # fmt: skip
    assert defaults.items() <= shown.items()
    assert shown["next_firing"] == "2030-03-17T18:00:15.000000Z"
    assert len(shown["next_firings"]) == 5

    world.clock.at(1)
    run = world.task(gateway("job.trigger", job=made["id"])["task_id"])
    assert (run.type, run.target_type, run.timeout_ms) == ("http", "http", 15_000)
    assert json.loads(not_none(run.param)) == {
        "method": "POST",
        "url": "http://service.example/run",
        "headers": '{"Content-Type":"application/json","Authorization":"Bearer abcdefgh"}',
        "body": '{"run": "{{run_id}}"}',
        "timeout": 10,
        "exec_type": "SYNC",
    }


def test_omitted_fields_have_defaults(gateway: StubGateway) -> None:
    call = gateway("job.create", name="call", cron_expr="* * * * *", target_url="http://h/")
    assert call["cron_expr"] == "0 * * * * *"
    assert (call["timeout_seconds"], call["http_method"], call["exec_type"]) == (15, "GET", "SYNC")
    assert (call["max_concurrency"], call["concurrency_policy"]) == (0, "QUEUE")
    assert (call["overlap_action"], call["failure_action"]) == ("ALLOW", "RUN_NEW")
    assert (call["misfire_grace_seconds"], call["priority"]) == (10, 5)
    task = gateway("job.create", **TASK)
    assert task["cron_expr"] == "0 0 6 * * MON-FRI", "stored normalised"
    assert (task["type"], task["target_type"]) == (SPEC.type, SPEC.target_type)
    assert task["timeout_seconds"] == 20, "as its handler declares"
    assert gateway("job.create", **TASK | {"name": "b", "type": "begins"})["timeout_seconds"] == 8


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"name": " x"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"description": "x" * 513}, "description"),
        ({"cron_expr": "61 * * * * *"}, "second field"),
        ({"cron_expr": "* * *"}, "cron_expr"),
        ({"cron_expr": "@daily 25:00"}, "cron_expr"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"starts_at": "tomorrow"}, "starts_at"),
        ({"ends_at": "2030-01-01T00:00:00"}, "ends_at"),
        ({"starts_at": 2_000_000_000, "ends_at": 1_000_000_000}, "ends_at"),
        ({"jitter_seconds": 3601}, "jitter_seconds"),
        ({"exec_type": "MAYBE"}, "exec_type"),
        ({"http_method": "BREW"}, "http_method"),
        ({"target_url": "ftp://h/"}, "target_url"),
        ({"target_url": "http://h/{{nope}}"}, "target_url"),
        ({"target_url": "http://{{run_id}}/"}, "target_url"),
        ({"headers_json": "{"}, "headers_json"),
        ({"headers_json": {"Host": "x"}}, "headers_json.Host"),
        ({"headers_json": {"X-A": 1}}, "headers_json.X-A"),
        ({"headers_json": {"X-A": "{{who}}"}}, "headers_json.X-A"),
        ({"body_template": '{"a": {{unknown}}}'}, "body_template"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": "10"}, "timeout_seconds"),
        ({"retry_policy_json": '{"max_attempts": 0}'}, "retry_policy_json"),
        ({"retry_policy_json": {"on": ["sometimes"]}}, "retry_policy_json.on"),
        ({"retry_policy_json": {"often": 3}}, "retry_policy_json"),
        ({"retry_policy_json": "nonsense"}, "retry_policy_json"),
        ({"max_concurrency": -1}, "max_concurrency"),
        ({"concurrency_policy": "QUEU"}, "concurrency_policy"),
        ({"overlap_action": "skip"}, "overlap_action"),
        ({"failure_action": "PANIC"}, "failure_action"),
        ({"catch_up_mode": "SOME"}, "catch_up_mode"),
        ({"misfire_grace_seconds": 0}, "misfire_grace_seconds"),
        ({"callback_timeout_sec": 60}, "callback_timeout_sec"),
        ({"callback_method": "GET"}, "callback_method"),
        ({"priority": 10}, "priority"),
        ({"status": "PAUSED"}, "status"),
        ({"param": {"a": 1}}, "param"),
        ({"type": SPEC.type}, "target_url"),
        ({"colour": "red"}, "colour"),
        ({"cron_expr": None}, "cron_expr"),
    ],
)
def test_an_error_names_the_wrong_field(
    gateway: StubGateway, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(WrongUse) as caught:
        gateway("job.create", **SAMPLE | wrong)
    assert words in str(caught.value)
    assert gateway("job.list")["jobs"] == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"type": "unknown"}, "unknown"),
        ({"type": "strict"}, "param"),
        ({"type": "strict", "param": {"n": 0}}, "param.n"),
        ({"exec_type": "ASYNC"}, "exec_type"),
        ({"http_method": "GET"}, "http_method"),
        ({"headers_json": "{}"}, "headers_json"),
        ({"callback_timeout_sec": 60}, "callback_timeout_sec"),
        ({"type": None}, "target_url"),
    ],
)
def test_an_error_of_a_task_job_names_the_wrong_field(
    gateway: StubGateway, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(WrongUse, match=words):
        gateway("job.create", **TASK | wrong)


def test_an_async_call_has_a_callback_method_and_timeout(gateway: StubGateway) -> None:
    made = gateway("job.create", **SAMPLE | {"exec_type": "ASYNC"})
    assert (made["callback_method"], made["callback_timeout_sec"]) == ("POST", 3600)
    changed = gateway("job.update", job="sample", callback_timeout_sec=5)
    assert changed["callback_timeout_sec"] == 5
    assert gateway("job.update", job="sample", exec_type="SYNC")["callback_timeout_sec"] is None


def test_a_retry_policy_reaches_the_runs(gateway: StubGateway, world: JobWorld) -> None:
    policy = {"max_attempts": 4, "delay": 0.5, "factor": 3.0, "on": ["5xx", "timeout"]}
    made = gateway("job.create", **SAMPLE | {"retry_policy_json": json.dumps(policy)})
    assert json.loads(made["retry_policy_json"]) == policy
    run = world.task(gateway("job.trigger", job="sample")["task_id"])
    retry = json.loads(not_none(run.retry))
    assert (retry["retries"], retry["delay"], retry["factor"]) == (3, 0.5, 3.0)
    assert retry["causes"] == ["error", "timeout"]
    assert json.loads(json.loads(not_none(run.param))["retry"]) == policy


def test_a_repeated_request_creates_one_job(gateway: StubGateway) -> None:
    one, two = (gateway("job.create", "same-id", **SAMPLE) for _ in range(2))
    assert one == two
    assert len(gateway("job.list")["jobs"]) == 1
    with pytest.raises(Conflict, match="already a job called 'sample'"):
        gateway("job.create", **SAMPLE)
