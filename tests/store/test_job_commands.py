"""The commands of jobs: what is accepted as it stands, what is refused and by which name."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from drumline import metrics
from drumline.domain.policy import HandlerSpec
from drumline.domain.verdict import End, Outcome
from drumline.errors import (
    BadToken,
    Conflict,
    DrumlineError,
    NotFound,
    VersionConflict,
    WrongUse,
)
from drumline.handlers.base import specs_of
from drumline.handlers.http.handler import HttpHandler
from drumline.store import callbacks, firings, jobs, runs
from drumline.store.database import Database
from drumline.store.firings import Plan
from tests.store.desk import STRICT, Desk
from tests.store.job_world import SECOND, STANDARD, START, JobWorld, stopped_clock
from tests.store.world import LIMITS, REGION, SPEC, over

(HTTP,) = specs_of(HttpHandler(), "http")
ASYNC = HandlerSpec("target", "begins", callbacks=True, timeout=7.5)

C12 = {
    "name": "sample",
    "description": "calls every 15 seconds",
    "cron_expr": "*/15 * * * * *",
    "exec_type": "SYNC",
    "http_method": "POST",
    "target_url": "http://service.example/run",
    "headers_json": '{"Content-Type": "application/json", "Authorization": "Bearer abcdefgh"}',
    "body_template": '{"run": "{{run_id}}"}',
    "timeout_seconds": 10,
    "max_concurrency": 1,
    "concurrency_policy": "QUEUE",
    "overlap_action": "SKIP",
    "failure_action": "RUN_NEW",
}
TASK = {"name": "task", "cron_expr": "0 6 * * mon-fri", "type": SPEC.type}


@pytest.fixture
def world(database: Database) -> Iterator[JobWorld]:
    with stopped_clock(database) as clock:
        yield JobWorld(database, clock)


@pytest.fixture
def desk(world: JobWorld) -> Desk:
    world.announce(SPEC, STRICT, ASYNC, HTTP)
    return Desk(world.database)


# --- create --------------------------------------------------------------------------------------


def test_the_sample_body_creates_a_job_as_it_stands(desk: Desk, world: JobWorld) -> None:
    made = desk("job.create", **C12)
    assert desk.rings == 1, "the ticker is woken"
    shown = desk("job.show", job="sample")
    assert made.items() <= shown.items()
    assert {k: v for k, v in C12.items() if k != "headers_json"}.items() <= shown.items()
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
    run = world.task(desk("job.trigger", job=made["id"])["task_id"])
    assert (run.type, run.target_type, run.timeout_ms) == ("http", "http", 15_000)
    assert json.loads(run.param) == {
        "method": "POST",
        "url": "http://service.example/run",
        "headers": '{"Content-Type":"application/json","Authorization":"Bearer abcdefgh"}',
        "body": '{"run": "{{run_id}}"}',
        "timeout": 10,
        "exec_type": "SYNC",
    }


def test_what_is_omitted_has_its_default(desk: Desk) -> None:
    call = desk("job.create", name="call", cron_expr="* * * * *", target_url="http://h/")
    assert call["cron_expr"] == "0 * * * * *"
    assert (call["timeout_seconds"], call["http_method"], call["exec_type"]) == (15, "GET", "SYNC")
    assert (call["max_concurrency"], call["concurrency_policy"]) == (0, "QUEUE")
    assert (call["overlap_action"], call["failure_action"]) == ("ALLOW", "RUN_NEW")
    assert (call["misfire_grace_seconds"], call["priority"]) == (10, 5)
    task = desk("job.create", **TASK)
    assert task["cron_expr"] == "0 0 6 * * MON-FRI", "stored normalised"
    assert (task["type"], task["target_type"]) == (SPEC.type, SPEC.target_type)
    assert task["timeout_seconds"] == 20, "what its handler asks for"
    assert desk("job.create", **TASK | {"name": "b", "type": "begins"})["timeout_seconds"] == 8


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
def test_what_is_wrong_is_told_by_its_name(desk: Desk, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongUse) as caught:
        desk("job.create", **C12 | wrong)
    assert words in str(caught.value)
    assert desk("job.list")["jobs"] == []


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
def test_what_is_wrong_with_a_job_of_tasks_too(
    desk: Desk, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(WrongUse, match=words):
        desk("job.create", **TASK | wrong)


def test_an_async_call_says_how_it_is_called_back(desk: Desk) -> None:
    made = desk("job.create", **C12 | {"exec_type": "ASYNC"})
    assert (made["callback_method"], made["callback_timeout_sec"]) == ("POST", 3600)
    changed = desk("job.update", job="sample", callback_timeout_sec=5)
    assert changed["callback_timeout_sec"] == 5
    assert desk("job.update", job="sample", exec_type="SYNC")["callback_timeout_sec"] is None


def test_a_retry_policy_reaches_the_runs(desk: Desk, world: JobWorld) -> None:
    policy = {"max_attempts": 4, "delay": 0.5, "factor": 3.0, "on": ["5xx", "timeout"]}
    made = desk("job.create", **C12 | {"retry_policy_json": json.dumps(policy)})
    assert json.loads(made["retry_policy_json"]) == policy
    run = world.task(desk("job.trigger", job="sample")["task_id"])
    retry = json.loads(run.retry)
    assert (retry["retries"], retry["delay"], retry["factor"]) == (3, 0.5, 3.0)
    assert retry["causes"] == ["error", "timeout"]
    assert json.loads(json.loads(run.param)["retry"]) == policy


def test_a_request_that_is_sent_twice_makes_one_job(desk: Desk) -> None:
    one, two = (desk("job.create", "same-id", **C12) for _ in range(2))
    assert one == two
    assert len(desk("job.list")["jobs"]) == 1
    with pytest.raises(Conflict, match="already a job called 'sample'"):
        desk("job.create", **C12)


# --- change --------------------------------------------------------------------------------------


def test_a_change_leaves_the_rest_as_it_was(desk: Desk, world: JobWorld) -> None:
    before = desk("job.create", **C12)
    after = desk("job.update", job="sample", version=1, cron_expr="*/20 * * * *", name="renamed")
    different = {name for name in after if after[name] != before[name]}
    assert different == {"name", "cron_expr", "version", "next_firing"}
    run = world.task(desk("job.trigger", job="renamed")["task_id"])
    assert "Bearer abcdefgh" in run.param, "its secrets are still there"
    with pytest.raises(VersionConflict, match="at version 2, not 1"):
        desk("job.update", job="renamed", version=1, max_concurrency=5)
    with pytest.raises(WrongUse, match="nothing to change"):
        desk("job.update", job="renamed")
    with pytest.raises(NotFound):
        desk("job.update", job="sample", max_concurrency=5)


def test_what_was_read_can_be_sent_back(desk: Desk, world: JobWorld) -> None:
    """With stars where the secrets are, which stay what they were."""
    desk("job.create", **C12)
    read = desk("job.show", job="sample")
    sent = {name: read[name] for name in C12} | {"description": "edited"}
    desk("job.update", job=read["id"], version=read["version"], **sent)
    run = world.task(desk("job.trigger", job="sample")["task_id"])
    assert "Bearer abcdefgh" in run.param
    world.clock.at(1)
    changed = {"Authorization": "Bearer other-one"}
    desk("job.update", job="sample", headers_json=changed)
    assert "Bearer other-one" in world.task(desk("job.trigger", job="sample")["task_id"]).param


def test_a_call_can_become_a_task_and_the_reverse(desk: Desk) -> None:
    desk("job.create", **C12)
    task = desk("job.update", job="sample", type="strict", param={"n": 3})
    assert (task["type"], task["target_url"], task["param"]) == ("strict", None, {"n": 3})
    assert task["timeout_seconds"] == 20
    call = desk("job.update", job="sample", target_url="http://h/x")
    assert (call["type"], call["target_url"], call["param"]) == ("http", "http://h/x", None)


def test_fields_can_be_emptied(desk: Desk) -> None:
    desk("job.create", **C12 | {"ends_at": "2031-01-01T00:00:00Z", "env": "prod"})
    assert desk("job.update", job="sample", ends_at=None)["ends_at"] is None
    shown = desk("job.update", job="sample", unset=["env", "max_concurrency"])
    assert (shown["env"], shown["max_concurrency"]) == (None, 0)
    with pytest.raises(WrongUse, match="'name' cannot be unset"):
        desk("job.update", job="sample", unset=["name"])


def test_a_wrong_change_changes_nothing(desk: Desk) -> None:
    before = desk("job.create", **C12)
    for wrong in ({"cron_expr": "nonsense"}, {"target_url": "http://h/{{x}}"}, {"type": "no"}):
        with pytest.raises(WrongUse):
            desk("job.update", job="sample", **wrong)
    assert desk("job.show", job="sample").items() >= before.items()


def test_enable_and_disable_are_said_once(desk: Desk, world: JobWorld) -> None:
    made = desk("job.create", **C12)
    world.materialise(made["id"], 60)
    assert desk("job.enable", job="sample")["version"] == 1, "it is: its firings stay"
    assert len(world.seconds(made["id"])) == 4
    off = desk("job.disable", job="sample", version=1)
    assert (off["status"], off["version"], off["next_firing"]) == ("DISABLED", 2, None)
    assert world.seconds(made["id"]) == []
    with pytest.raises(VersionConflict):
        desk("job.enable", job="sample", version=1)
    with pytest.raises(VersionConflict):
        desk("job.disable", job="sample", version=1)
    assert desk("job.enable", job="sample", version=2)["status"] == "ENABLED"


def test_a_deleted_job_is_gone_and_its_runs_are_not(desk: Desk, world: JobWorld) -> None:
    made = desk("job.create", **C12)
    run = desk("job.trigger", job="sample")["task_id"]
    assert desk("job.delete", job="sample")["deleted"] is True
    for command in ("job.show", "job.enable", "job.trigger", "job.runs", "job.delete"):
        with pytest.raises(NotFound):
            desk(command, job=made["id"])
    assert desk("job.list")["jobs"] == []
    assert desk("task.show", task_id=run)["status"] == "cancel"


# --- look ----------------------------------------------------------------------------------------


def test_runs_are_listed_by_status_and_time_in_pages(desk: Desk, world: JobWorld) -> None:
    job_id, worker = world.job(name="busy", overlap_action="SKIP"), world.keeper()
    world.run(job_id, 1, worker)
    world.fire(job_id, 2)
    world.start(job_id, 2, worker)
    world.fire(job_id, 3)
    world.materialise(job_id, 10)

    def runs(**options: Any) -> list[tuple[int, str]]:
        found = desk("job.runs", job="busy", **options)["runs"]
        return [(world.task(r["id"]).scheduled_at // SECOND - START // SECOND, r["status"])
                for r in found]  # fmt: skip

    assert runs() == [(3, "skipped"), (2, "running"), (1, "success")]
    assert runs(status=["success", "skipped"]) == [(3, "skipped"), (1, "success")]
    assert runs(since=str(START // SECOND + 2)) == [(3, "skipped"), (2, "running")]
    assert runs(until=str(START // SECOND + 2)) == [(2, "running"), (1, "success")]
    assert len(runs(status=["scheduled"])) == 7, "those to come, if they are asked for"
    page = desk("job.runs", job="busy", limit=2)
    assert [r["status"] for r in page["runs"]] == ["skipped", "running"]
    assert page["runs"][0]["reason"].startswith("skipped: 1 earlier run")
    rest = desk("job.runs", job="busy", limit=2, before=page["next"])
    assert [r["status"] for r in rest["runs"]] == ["success"] and rest["next"] is None
    with pytest.raises(WrongUse, match="since"):
        runs(since="yesterday")


def test_next_for_jobs_and_bare_expressions(desk: Desk) -> None:
    desk("job.create", **TASK | {"timezone": "Europe/Berlin"})
    found = desk("job.next", job="task", after="2030-03-29T12:00:00Z", count=2)
    assert found["firings"] == [
        {"utc": "2030-04-01T04:00:00.000000Z", "local": "2030-04-01T06:00:00+02:00"},
        {"utc": "2030-04-02T04:00:00.000000Z", "local": "2030-04-02T06:00:00+02:00"},
    ]
    bare = desk("job.next", cron_expr="*/30 * * * * *", count=3)
    assert [one["utc"][-10:] for one in bare["firings"]] == [
        "30.000000Z",
        "00.000000Z",
        "30.000000Z",
    ]
    assert desk("job.next", cron_expr="@after 5s")["firings"] == []
    for wrong in ({}, {"job": "task", "cron_expr": "* * * * *"}, {"cron_expr": "* * *"}):
        with pytest.raises(WrongUse):
            desk("job.next", **wrong)


def test_a_trigger_says_what_it_did_and_why(desk: Desk, world: JobWorld) -> None:
    desk("job.create", **C12 | {"overlap_action": "ALLOW"})
    done = [desk("job.trigger", job="sample")]
    world.clock.at(0.1)
    done.append(desk("job.trigger", job="sample"))
    desk("job.update", job="sample", concurrency_policy="SKIP")
    world.clock.at(0.2)
    done.append(desk("job.trigger", job="sample"))
    assert [one["done"] for one in done] == ["runs", "queued", "skipped"]
    assert "max_concurrency is 1" in done[1]["reason"]
    assert done[2]["cause"] == "concurrency"
    assert "max_concurrency is 1" in desk("task.show", task_id=done[1]["task_id"])["why"]


def test_a_failed_run_is_retried_under_the_limit(desk: Desk, world: JobWorld) -> None:
    job_id, worker = world.job(max_concurrency=1), world.keeper()
    world.run(job_id, 1, worker, End.ERROR)
    failed = world.at(job_id, 1).id
    world.fire(job_id, 2)
    with pytest.raises(Conflict, match="max_concurrency is 1"):
        desk("task.retry", task_id=failed)
    world.start(job_id, 2, worker)
    world.finish(job_id, 2, worker)
    assert desk("task.retry", task_id=failed)["status"] == "retry_pending"
    assert world.fire(job_id, 3).state == "scheduled", "it counts"


# --- callbacks -----------------------------------------------------------------------------------


def refusals(code: str) -> float:
    return float(metrics.callbacks.labels(code)._value.get())


def test_callbacks_come_in_by_their_token_and_refusals_are_counted(
    desk: Desk, world: JobWorld
) -> None:
    key, worker = callbacks.secret_key(world.database), world.keeper()
    task_id = world.one_shot()
    (due,) = world.acquire(worker, [task_id])
    token = callbacks.token_for(key, task_id, due.fence)

    def call_back(status: str, token: str = token, **values: Any) -> str:
        callback = {"status": status, **values}
        return str(
            desk("callback.receive", task_id=task_id, token=token, callback=callback)["done"]
        )

    bad, late = refusals("BadToken"), refusals("Conflict")
    with pytest.raises(BadToken):
        call_back("success", "wrong")
    assert call_back("progress", message="half") == "noted"
    waiting = over(due, outcome=Outcome(End.WAITING, wait=60))
    world.release(worker, [waiting])
    assert call_back("success", result=7) == "done"
    with pytest.raises(Conflict):
        call_back("success")
    assert (refusals("BadToken"), refusals("Conflict")) == (bad + 1, late + 1)
    assert desk("task.show", task_id=task_id)["result"] == {"answer": None, "callback": 7}
    for wrong in ({"status": "perhaps"}, {"status": "success", "more": 1}, {}):
        with pytest.raises(WrongUse, match="callback"):
            desk("callback.receive", task_id=task_id, token=token, callback=wrong)


def test_an_early_callback_is_settled_by_whoever_comes_first(desk: Desk, world: JobWorld) -> None:
    """The run began to wait while the callback was being written."""
    key, worker = callbacks.secret_key(world.database), world.keeper()
    task_id = world.one_shot()
    (due,) = world.acquire(worker, [task_id])
    token = callbacks.token_for(key, task_id, due.fence)
    really = callbacks._note

    def meanwhile(*args: Any) -> None:
        really(*args)
        waiting = over(due, outcome=Outcome(End.WAITING, wait=60))
        runs.settle(args[0], worker, [waiting], LIMITS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callbacks, "_note", meanwhile)
        callback = {"status": "success"}
        done = desk("callback.receive", task_id=task_id, token=token, callback=callback)
    assert done["done"] == "kept"
    assert world.task(task_id).status == "success"


def test_firings_of_another_region_are_not_seen(desk: Desk, world: JobWorld) -> None:
    other = world.write(lambda tx: jobs.create(tx, "elsewhere", STANDARD))
    with pytest.raises(DrumlineError):
        desk("job.show", job=other)
    row = world.job_row(other)
    world.write(lambda tx: firings.materialise(tx, [Plan(row, [START + SECOND], START + SECOND)]))
    world.clock.at(2)
    assert world.database.read(lambda tx: firings.undecided(tx, REGION, tx.now, 10)) == []
