"""The REST interface over real HTTP."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from drumline.domain.release import RunEnd, RunOutcome
from drumline.store.job import callbacks
from drumline.store.task import runs
from drumline.telemetry import metrics
from drumline.web.routes import PREFIX
from tests.store.job_samples import ASYNC, SAMPLE
from tests.store.stub_gateway import STRICT
from tests.store.world import LIMITS, REGION, SPEC, World, over
from tests.web_site import Site, require_problem

# --- jobs ----------------------------------------------------------------------------------------


def test_the_documented_sample_creates_a_job(site: Site) -> None:
    made = site("POST", "/jobs", SAMPLE, by="operate")
    assert made.status == 201, made.body
    assert made.headers["location"] == f"/api/v1/jobs/{made.document['id']}"
    shown = site("GET", made.headers["location"].removeprefix("/api/v1"), by="read")
    assert (shown.status, shown.headers["content-type"]) == (200, "application/json")
    assert {
        k: v for k, v in SAMPLE.items() if k != "headers_json"
    }.items() <= shown.document.items()
    assert site("GET", "/jobs/sample").document == shown.document, "by its name, too"


def test_the_life_cycle_of_a_job(site: Site) -> None:
    made = site("POST", "/jobs", SAMPLE)
    assert made.headers["etag"] == '"1"'
    changed = site("PATCH", "/jobs/sample", {"timeout_seconds": 20, "version": 1})
    assert (changed.status, changed.document["timeout_seconds"]) == (200, 20)
    assert changed.headers["etag"] == '"2"'
    assert site("POST", "/jobs/sample/disable").document["status"] == "DISABLED"
    assert site("GET", "/jobs?status=DISABLED").document["jobs"][0]["name"] == "sample"
    assert site("POST", "/jobs/sample/enable", {}).document["status"] == "ENABLED"
    fired = site("POST", "/jobs/sample/trigger")
    assert (fired.status, fired.document["done"]) == (201, "runs")
    run = site("GET", fired.headers["location"].removeprefix("/api/v1")).document
    assert (run["id"], run["type"]) == (fired.document["task_id"], "http")
    found = site("GET", "/jobs/sample/runs?status=pending&status=running").document["runs"]
    assert [one["id"] for one in found] == [run["id"]]
    assert len(site("GET", "/jobs/sample/next?count=3").document["firings"]) == 3
    assert site("DELETE", "/jobs/sample").document["deleted"] is True
    require_problem(site("GET", "/jobs/sample"), 404, "no job sample")


def test_the_next_firings_of_an_expression(site: Site) -> None:
    query = "cron_expr=0+30+2+*+*+sun&timezone=Europe/Berlin&after=2030-01-01T00:00:00Z&count=2"
    found = site("GET", f"/cron/next?{query}", by="read").document
    assert [one["local"] for one in found["firings"]] == [
        "2030-01-06T02:30:00+01:00",
        "2030-01-13T02:30:00+01:00",
    ]


def test_a_stale_version_changes_nothing(site: Site) -> None:
    site("POST", "/jobs", SAMPLE)
    assert site("PATCH", "/jobs/sample", {"priority": 7}, If_Match='"1"').status == 200
    for late in (
        site("PATCH", "/jobs/sample", {"priority": 8}, If_Match='"1"'),
        site("PATCH", "/jobs/sample", {"priority": 8, "version": 1}),
        site("POST", "/jobs/sample/disable", If_Match='"1"'),
        site("DELETE", "/jobs/sample?version=1"),
    ):
        require_problem(late, 409, "at version 2, not 1")
    assert site("GET", "/jobs/sample").document["priority"] == 7
    wrong = site("PATCH", "/jobs/sample", {"priority": 8}, If_Match="soon")
    require_problem(wrong, 422, "If-Match must be a version in quotes", "version")
    unlike = site("PATCH", "/jobs/sample", {"priority": 8, "version": 1}, If_Match='"2"')
    require_problem(unlike, 422, "differs from the version in the body", "version")


# --- batches, tasks, workers, the queue ----------------------------------------------------------


def test_the_life_cycle_of_a_batch(site: Site, world: World) -> None:
    body = {"name": "june", "type": SPEC.type, "targets": [{"target_id": "a"}, {"target_id": "b"}]}
    made = site("POST", "/batches", body, by="operate")
    assert (made.status, made.document["tasks"]) == (201, 2)
    where = made.headers["location"].removeprefix("/api/v1")
    shown = site("GET", where).document
    assert (shown["name"], shown["creator"], shown["total"]) == ("june", "the-operate", 2)
    assert site("GET", "/batches?status=pending").document["batches"] == [shown]
    world.run(world.keeper(), end=RunEnd.ERROR)
    assert site("POST", f"{where}/retry").document["retried"] == 2
    assert site("POST", f"{where}/cancel", {"force": True}).document["cancelled"] == 2
    require_problem(site("POST", f"{where}/rollback"), 409, "cannot be rolled back")


def test_a_large_batch_is_loaded_in_chunks(site: Site) -> None:
    made = site("POST", "/loads", {"name": "large", "type": SPEC.type})
    load = f"/loads/{made.document['batch_id']}"
    for _ in range(2):
        assert site("POST", f"{load}/targets", {"count": 5000}).document["tasks"] == 5000
    assert site("POST", f"{load}/start").document["tasks"] == 10_000
    require_problem(site("DELETE", load), 409, "no longer being loaded")
    assert site("GET", made.headers["location"].removeprefix("/api/v1")).document["total"] == 10_000


def test_the_life_cycle_of_a_task(site: Site) -> None:
    made = site("POST", "/tasks", {"type": SPEC.type, "delay": 60, "instance_id": "one"})
    where = f"/tasks/{made.document['task_id']}"
    assert (made.status, made.headers["location"]) == (201, f"/api/v1{where}")
    assert site("PATCH", where, {"priority": 9}).document["priority"] == 9
    assert site("GET", where).document["instance_id"] == "one"
    require_problem(site("POST", "/tasks", {"type": SPEC.type, "instance_id": "one"}), 409, "one")
    assert site("POST", f"{where}/cancel").document["state"] == "cancel"
    require_problem(site("POST", f"{where}/retry"), 409, "cancel")
    many = site("POST", "/tasks/many", {"type": SPEC.type, "params": [1, 2, 3]})
    assert (many.status, many.document["tasks"]) == (201, 3)


def test_pages_link_to_the_next_page(site: Site) -> None:
    site("POST", "/tasks/many", {"type": SPEC.type, "params": [None] * 5})
    found, page = [], site("GET", f"/tasks?limit=2&type={SPEC.type}&status=pending")
    while True:
        found += [task["id"] for task in page.document["tasks"]]
        if "link" not in page.headers:
            break
        target, _, relation = page.headers["link"].partition("; ")
        assert relation == 'rel="next"'
        page = site("GET", target[1:-1].removeprefix(PREFIX))
    assert found == sorted(found, reverse=True) and len(found) == 5


def test_the_next_page_of_an_ascending_list_comes_after(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(tx: object, sweep_id: int, after: int | None, limit: int) -> list[Any]:
        first = 0 if after is None else after + 1
        return [SimpleNamespace(item=first + n, created_at=0) for n in range(limit)]

    monkeypatch.setattr("drumline.store.sweep.sweeps.get", lambda *_: SimpleNamespace(id=1))
    monkeypatch.setattr("drumline.store.sweep.sweep_log.failed", failed)
    page = site("GET", "/sweeps/1/failed?limit=2&after=4")
    assert [one["index"] for one in page.document["failed"]] == [5, 6]
    assert page.headers["link"] == '</api/v1/sweeps/1/failed?limit=2&after=6>; rel="next"'


def test_workers_queue_handlers_and_status(site: Site) -> None:
    assert site("GET", "/workers", by="read").document == {"workers": [], "dispatcher": True}
    require_problem(site("POST", "/workers/nobody/drain"), 404, "no live worker nobody")
    assert site("POST", "/queue/pause", {"type": SPEC.type}).document["paused"] == [SPEC.type]
    assert site("GET", "/queue", by="read").document["paused"] == [SPEC.type]
    assert site("POST", "/queue/resume", {"type": SPEC.type}).document["paused"] == []
    assert len(site("GET", "/handlers").document["handlers"]) == 5
    assert site("GET", "/handlers/strict").document["schema"] == STRICT.schema
    status = site("GET", "/status", by="read").document
    assert (status["region"], status["ready"], status["missing"]) == (REGION, True, [])


# --- callbacks -----------------------------------------------------------------------------------


def test_a_callback_needs_the_token_of_its_run(site: Site, world: World) -> None:
    def waiting() -> tuple[int, str]:
        task_id = world.one_shot(type=ASYNC.type, timeout_ms=60_000)
        keeper_id = world.keeper()
        (due,) = world.acquire(keeper_id, [task_id])
        outcome = RunOutcome(RunEnd.WAITING, result="{}", callback_timeout=60)
        ended = over(due, handler=ASYNC, outcome=outcome)
        assert runs.release(world.database, keeper_id, [ended], LIMITS, 0.5) == []
        key = callbacks.secret_key(world.database)
        return task_id, callbacks.token_for(key, task_id, due.fence)

    before = metrics.callbacks.labels("NoCallbackToken")._value.get()
    body = {"status": "success", "result": {"rows": 3}}
    (first, token), (second, other) = waiting(), waiting()
    none = site("POST", f"/callbacks/{first}", body, by=None)
    require_problem(none, 401, "its run's token")
    assert metrics.callbacks.labels("NoCallbackToken")._value.get() == before + 1
    for wrong in ("admin", other):
        require_problem(
            site("POST", f"/callbacks/{first}", body, by=wrong), 403, "does not match this run"
        )
    bad = site("POST", f"/callbacks/{first}", {"status": "maybe"}, by=token)
    require_problem(bad, 422, "maybe", "callback.status")
    assert site("POST", f"/callbacks/{first}", body, by=token).document["done"] == "done"
    require_problem(site("POST", f"/callbacks/{first}", body, by=token), 409, "no callback")
    by_header = site("PUT", f"/callbacks/{second}", body, by=None, Drumline_Callback_Token=other)
    assert by_header.document == {"task_id": second, "done": "done"}
    assert json.loads(world.result(second) or "")["callback"] == {"rows": 3}


# --- once ----------------------------------------------------------------------------------------


def test_a_change_with_an_idempotency_key_is_made_once(site: Site) -> None:
    body = {"type": SPEC.type}
    first = site("POST", "/tasks", body, Idempotency_Key="k1")
    again = site("POST", "/tasks", body, Idempotency_Key="k1")
    assert (again.status, again.document) == (201, first.document)
    assert site("POST", "/tasks", body).document != first.document
    require_problem(site("POST", "/queue/pause", Idempotency_Key="k1"), 409, "task.schedule")
    require_problem(site("POST", "/tasks", body, Idempotency_Key="k" * 65), 422, "1 to 64")
