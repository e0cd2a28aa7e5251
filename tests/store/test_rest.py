"""The REST door over real HTTP: what each request does, who may send it, how it is refused."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

from drumline import commands, metrics
from drumline.commands.base import Query
from drumline.domain.roles import Role
from drumline.domain.verdict import End, Outcome
from drumline.store import callbacks, runs, tokens
from drumline.store.database import Database
from drumline.store.tables import request
from drumline.store.tables import token as token_table
from drumline.web import openapi
from drumline.web.routes import PREFIX, TABLE, Endpoint
from tests.store.desk import STRICT, UNDOES, Desk
from tests.store.test_job_commands import ASYNC, C12, HTTP
from tests.store.world import LIMITS, REGION, SPEC, World, over, passing_fault
from tests.web_site import Reply, Site

PROBLEM = "application/problem+json"


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    world.announce(SPEC, STRICT, UNDOES, ASYNC, HTTP)
    with Site(Desk(world.database).context) as site:
        yield site


def require_problem(reply: Reply, status: int, words: str, field: str | None = None) -> None:
    """One clear answer that says what is wrong."""
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == PROBLEM
    said = reply.document
    assert said["status"] == status and said["title"] and said["type"]
    assert words in said["detail"]
    assert said.get("field") == field


# --- jobs ----------------------------------------------------------------------------------------


def test_the_sample_body_creates_a_job_as_it_stands(site: Site) -> None:
    made = site("POST", "/jobs", C12, by="operate")
    assert made.status == 201, made.body
    assert made.headers["location"] == f"/api/v1/jobs/{made.document['id']}"
    shown = site("GET", made.headers["location"].removeprefix("/api/v1"), by="read")
    assert (shown.status, shown.headers["content-type"]) == (200, "application/json")
    assert {k: v for k, v in C12.items() if k != "headers_json"}.items() <= shown.document.items()
    assert site("GET", "/jobs/sample").document == shown.document, "by its name, too"


def test_a_job_through_its_life(site: Site) -> None:
    made = site("POST", "/jobs", C12)
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


def test_a_bare_expression_is_asked_for_its_next_times(site: Site) -> None:
    query = "cron_expr=0+30+2+*+*+sun&timezone=Europe/Berlin&after=2030-01-01T00:00:00Z&count=2"
    found = site("GET", f"/cron/next?{query}", by="read").document
    assert [one["local"] for one in found["firings"]] == [
        "2030-01-06T02:30:00+01:00",
        "2030-01-13T02:30:00+01:00",
    ]


def test_a_version_that_is_not_the_one_that_was_read_changes_nothing(site: Site) -> None:
    site("POST", "/jobs", C12)
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
    require_problem(wrong, 422, "If-Match is a version in quotes", "version")
    unlike = site("PATCH", "/jobs/sample", {"priority": 8, "version": 1}, If_Match='"2"')
    require_problem(unlike, 422, "another one than the body", "version")


# --- batches, tasks, workers, the queue ----------------------------------------------------------


def test_a_batch_through_its_life(site: Site, world: World) -> None:
    body = {"name": "june", "type": SPEC.type, "targets": [{"target_id": "a"}, {"target_id": "b"}]}
    made = site("POST", "/batches", body, by="operate")
    assert (made.status, made.document["tasks"]) == (201, 2)
    where = made.headers["location"].removeprefix("/api/v1")
    shown = site("GET", where).document
    assert (shown["name"], shown["creator"], shown["total"]) == ("june", "the-operate", 2)
    assert site("GET", "/batches?status=pending").document["batches"] == [shown]
    world.run(world.keeper(), end=End.ERROR)
    assert site("POST", f"{where}/retry").document["retried"] == 2
    assert site("POST", f"{where}/cancel", {"force": True}).document["cancelled"] == 2
    require_problem(site("POST", f"{where}/rollback"), 409, "cannot be rolled back")


def test_a_large_batch_is_loaded_in_parts(site: Site) -> None:
    made = site("POST", "/loads", {"name": "large", "type": SPEC.type})
    load = f"/loads/{made.document['batch_id']}"
    for _ in range(2):
        assert site("POST", f"{load}/targets", {"count": 5000}).document["tasks"] == 5000
    assert site("POST", f"{load}/start").document["tasks"] == 10_000
    require_problem(site("DELETE", load), 409, "not being loaded any more")
    assert site("GET", made.headers["location"].removeprefix("/api/v1")).document["total"] == 10_000


def test_a_task_through_its_life(site: Site) -> None:
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


def test_lists_come_in_pages_with_a_link_to_the_next(site: Site) -> None:
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


def test_a_list_that_counts_up_has_its_next_page_above(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(tx: object, sweep_id: int, after: int | None, limit: int) -> list[Any]:
        first = 0 if after is None else after + 1
        return [SimpleNamespace(item=first + n, created_at=0) for n in range(limit)]

    monkeypatch.setattr("drumline.store.sweeps.get", lambda *_: SimpleNamespace(id=1))
    monkeypatch.setattr("drumline.store.sweep_log.failed", failed)
    page = site("GET", "/sweeps/1/failed?limit=2&after=4")
    assert [one["index"] for one in page.document["failed"]] == [5, 6]
    assert page.headers["link"] == '</api/v1/sweeps/1/failed?limit=2&after=6>; rel="next"'


def test_workers_queue_handlers_and_status(site: Site) -> None:
    assert site("GET", "/workers", by="read").document == {"workers": [], "dispatcher": True}
    require_problem(site("POST", "/workers/nobody/drain"), 404, "no living worker nobody")
    assert site("POST", "/queue/pause", {"type": SPEC.type}).document["paused"] == [SPEC.type]
    assert site("GET", "/queue", by="read").document["paused"] == [SPEC.type]
    assert site("POST", "/queue/resume", {"type": SPEC.type}).document["paused"] == []
    assert len(site("GET", "/handlers").document["handlers"]) == 5
    assert site("GET", "/handlers/strict").document["schema"] == STRICT.schema
    status = site("GET", "/status", by="read").document
    assert (status["region"], status["ready"], status["missing"]) == (REGION, True, [])


# --- callbacks -----------------------------------------------------------------------------------


def test_a_callback_shows_the_runs_token_and_not_ours(site: Site, world: World) -> None:
    def waiting() -> tuple[int, str]:
        task_id = world.one_shot(type=ASYNC.type, timeout_ms=60_000)
        keeper_id = world.keeper()
        (due,) = world.acquire(keeper_id, [task_id])
        outcome = Outcome(End.WAITING, result="{}", wait=60)
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
        require_problem(site("POST", f"/callbacks/{first}", body, by=wrong), 403, "not right")
    bad = site("POST", f"/callbacks/{first}", {"status": "maybe"}, by=token)
    require_problem(bad, 422, "maybe", "callback.status")
    assert site("POST", f"/callbacks/{first}", body, by=token).document["done"] == "done"
    require_problem(site("POST", f"/callbacks/{first}", body, by=token), 409, "no callback")
    by_header = site("PUT", f"/callbacks/{second}", body, by=None, Drumline_Callback_Token=other)
    assert by_header.document == {"task_id": second, "done": "done"}
    assert json.loads(world.result(second) or "")["callback"] == {"rows": 3}


# --- once ----------------------------------------------------------------------------------------


def test_an_idempotency_key_makes_a_change_happen_once(site: Site) -> None:
    body = {"type": SPEC.type}
    first = site("POST", "/tasks", body, Idempotency_Key="k1")
    again = site("POST", "/tasks", body, Idempotency_Key="k1")
    assert (again.status, again.document) == (201, first.document)
    assert site("POST", "/tasks", body).document != first.document
    require_problem(site("POST", "/queue/pause", Idempotency_Key="k1"), 409, "task.schedule")
    require_problem(site("POST", "/tasks", body, Idempotency_Key="k" * 65), 422, "1 to 64")


# --- who may -------------------------------------------------------------------------------------


def filled(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{", "").replace("}", "")


def test_a_token_must_be_there_and_right(site: Site) -> None:
    def refused(why: str) -> float:
        return float(metrics.tokens_refused.labels(why)._value.get())

    before = refused("NoToken"), refused("WrongToken")
    for endpoint in TABLE:
        if endpoint.role is not None:
            reply = site(endpoint.method, filled(endpoint), by=None)
            require_problem(reply, 401, "needs an API token")
            assert reply.headers["www-authenticate"].startswith("Bearer")
    require_problem(site("GET", "/jobs", by="wrong"), 401, "not known")
    basic = site("GET", "/jobs", by=None, Authorization=f"Basic {site.tokens['admin']}")
    require_problem(basic, 401, "bearer token")
    assert refused("NoToken") > before[0] and refused("WrongToken") == before[1] + 1


def test_each_role_may_do_what_its_line_says(site: Site) -> None:
    for endpoint in TABLE:
        if endpoint.role is None:
            continue
        assert issubclass(commands.by_name(endpoint.command), Query) == (endpoint.method == "GET")
        if endpoint.method != "GET":
            assert endpoint.role is not Role.READ, "who may only look changes nothing"
        for role in Role:
            reply = site(endpoint.method, filled(endpoint), by=role)
            if role.covers(endpoint.role):
                assert reply.status not in (401, 403)
            else:
                require_problem(reply, 403, f"the role {endpoint.role}; the-{role} has the role")


def test_tokens_are_given_told_once_and_taken_back(
    site: Site, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {"name": "ci", "role": "operate"}
    made = site("POST", "/tokens", about, Idempotency_Key="t1")
    secret = made.document.pop("token")
    assert made.status == 201 and len(secret) >= 43
    again = site("POST", "/tokens", about, Idempotency_Key="t1").document
    assert again == about, "it is told once"
    kept = database.read(
        lambda tx: [*tx.execute(select(request)), *tx.execute(select(token_table))]
    )
    assert secret not in repr(kept), "it is kept nowhere"
    require_problem(site("POST", "/tokens", about), 409, "already a token called 'ci'", "name")
    require_problem(
        site("POST", "/tokens", about | {"name": "a\n"}), 422, "letters, digits", "name"
    )
    assert site("GET", "/tasks", by=secret).status == 200
    (listed, *_) = site("GET", "/tokens").document["tokens"]
    assert (listed["name"], listed["role"], listed["revoked_at"]) == ("ci", "operate", None)
    assert listed["last_used_at"] is not None
    assert site("DELETE", "/tokens/ci").document == {"name": "ci", "revoked": True}
    monkeypatch.setattr("drumline.web.token.FRESH_SECONDS", -1.0)  # the moment has passed
    require_problem(site("GET", "/tasks", by=secret), 401, "revoked")
    require_problem(site("DELETE", "/tokens/ci"), 404, "no token ci")
    assert site("POST", "/tokens", about).status == 201, "the name is free again"


def test_a_nodes_own_token_is_known_and_replaced_when_its_file_is(database: Database) -> None:
    def ensure(secret: str) -> None:
        database.write(lambda tx: tokens.ensure(tx, "up@node", tokens.hash_of(secret)))

    def role(secret: str) -> str | None:
        row = database.read(lambda tx: tokens.find(tx, tokens.hash_of(secret)))
        return None if row is None else str(row.role)

    ensure("first")
    ensure("first")
    assert role("first") == "admin"
    ensure("second")
    assert (role("first"), role("second")) == (None, "admin")
    database.write(lambda tx: tokens.revoke(tx, "up@node"))
    ensure("second")
    assert role("second") is None, "what was revoked stays so"


# --- wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words", "field"),
    [
        ("POST", "/jobs", {"name": "x"}, 422, "cron_expr", "cron_expr"),
        ("POST", "/jobs", C12 | {"nosuch": 1}, 422, "unknown field", "nosuch"),
        ("POST", "/jobs", C12 | {"timeout_seconds": 0}, 422, ">= 1", "timeout_seconds"),
        ("POST", "/jobs", C12 | {"timeout_seconds": "9"}, 422, "int", "timeout_seconds"),
        ("POST", "/jobs", C12 | {"body_template": "{{who}}"}, 422, "who", "body_template"),
        ("POST", "/jobs", C12 | {"cron_expr": "61 * * * * *"}, 422, "second", "cron_expr"),
        ("POST", "/jobs", [1], 422, "must be a JSON object", None),
        ("PATCH", "/jobs/x", {"job": "y"}, 422, "the path says that", "job"),
        ("POST", "/batches", {"name": "x", "type": "nosuch", "count": 1}, 422, "nosuch", None),
        ("POST", "/batches", {"batch_name": "x"}, 422, "called name here", "batch_name"),
        ("POST", "/tasks", {"type": "strict", "param": {"n": 0}}, 422, "n", "param.n"),
        ("GET", "/tasks/abc", None, 422, "int", "task_id"),
        ("GET", "/tasks?limit=0", None, 422, ">= 1", "limit"),
        ("GET", "/tasks?limit=1&limit=2", None, 422, "2 times", "limit"),
        ("GET", "/tasks?nosuch=1", None, 422, "nosuch", "nosuch"),
        ("POST", "/queue/pause?type=x", None, 422, "takes a body", "type"),
        ("GET", "/tasks/12345", None, 404, "no task 12345", None),
        ("GET", "/nosuch", None, 404, "is not served", None),
        ("GET", "/jobs/", None, 404, "is not served", None),
        ("PUT", "/jobs", {}, 405, "takes", None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    site: Site, method: str, path: str, body: Any, status: int, words: str, field: str | None
) -> None:
    require_problem(site(method, path, body), status, words, field)


def test_a_wrong_method_is_told_the_right_ones(site: Site) -> None:
    allowed = site("PUT", "/jobs/x").headers["allow"]
    assert {"GET", "PATCH", "DELETE"} <= set(allowed.split(", "))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "truncated"),
        (b'{"a": NaN}', "JSON"),
        (b'"\\ud800"', "JSON"),
        (b"[" * 100_000, "recursion"),
        (b'{"type": 123456789012345678901234567890}', "64 bits"),
        (b"\xff", "JSON"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(site: Site, raw: bytes, words: str) -> None:
    require_problem(site("POST", "/tasks", raw=raw), 400, words)


def test_a_body_of_another_type_is_refused(site: Site) -> None:
    for found in ("text/plain", "application/x-www-form-urlencoded", ""):
        reply = site("POST", "/tasks", raw=b"type=x", Content_Type=found)
        require_problem(reply, 415, "Content-Type: application/json")
    body = json.dumps({"type": SPEC.type}).encode()
    for right in ("application/json; charset=utf-8", "application/merge-patch+json"):
        assert site("POST", "/tasks", raw=body, Content_Type=right).status == 201


def test_a_body_that_is_too_large_is_refused(site: Site) -> None:
    small, large = b" " * (2 * 2**20 + 1), b" " * (4 * 2**20 + 1)
    require_problem(site("POST", "/tasks", raw=small), 413, "more than 2097152 bytes")
    require_problem(site("POST", "/batches", raw=large), 413, "more than 4194304 bytes")
    assert site("POST", "/batches", raw=small).status == 400, "a batch may be larger"
    require_problem(site("POST", "/tasks", raw=iter([small])), 413, "more than")


def test_what_is_not_ours_is_not_explained_to_strangers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_(*_: object) -> None:
        raise RuntimeError("the password is sesame")

    monkeypatch.setattr("drumline.store.tasks.listed", break_)
    require_problem(site("GET", "/tasks"), 500, "an internal error; see the log")


def test_a_database_that_is_away_is_503_and_known_tokens_stay_known(
    site: Site, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise passing_fault(database)

    assert site("GET", "/tasks", by="read").status == 200
    monkeypatch.setattr("drumline.web.token.FRESH_SECONDS", -1.0)
    monkeypatch.setattr(database, "_read_once", away)
    require_problem(site("GET", "/tasks", by="read"), 503, "database cannot be reached")
    assert site("GET", "/queue", by="operate").status == 503, "this one was not known"


# --- the description -----------------------------------------------------------------------------


def test_the_document_describes_every_line(site: Site) -> None:
    document = site("GET", "//api/openapi.json", by=None).document
    assert document["openapi"] == "3.1.0"
    described = {
        (method.upper(), path.removeprefix(PREFIX))
        for path, ways in document["paths"].items()
        for method in ways
    }
    assert described == {(endpoint.method, endpoint.path) for endpoint in TABLE}
    operations = [o for ways in document["paths"].values() for o in ways.values()]
    assert len({o["operationId"] for o in operations}) == len(operations)
    assert all(o["summary"] and "`drumline" not in o["summary"] for o in operations)
    create = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]
    schema = create["content"]["application/json"]["schema"]
    assert schema["required"] == ["name", "cron_expr"] and set(C12) <= set(schema["properties"])
    submit = document["paths"]["/api/v1/batches"]["post"]["requestBody"]
    assert "name" in submit["content"]["application/json"]["schema"]["required"]
    listing = document["paths"]["/api/v1/tasks"]["get"]["parameters"]
    (status,) = (one for one in listing if one["name"] == "status")
    assert status["description"] == "All states if none is named."


def test_the_page_shows_every_line_and_loads_nothing(site: Site) -> None:
    start = site("GET", "//", by=None)
    assert (start.status, start.headers["location"]) == (307, "/api/docs")
    page = site("GET", "//api/docs", by=None)
    assert page.headers["content-type"].startswith("text/html")
    text = page.body.decode()
    for path, ways in openapi.document()["paths"].items():
        for operation in ways.values():
            assert f'id="{operation["operationId"]}"' in text
        assert path in text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "src=" not in text and "http://" not in text and "https://" not in text
