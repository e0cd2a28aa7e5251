"""The errors of wrong REST requests."""

import json
from typing import Any

import pytest

from drumline.store.database import Database
from tests.store.job_samples import SAMPLE
from tests.store.world import SPEC, passing_fault
from tests.web_site import Site, require_problem


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words", "field"),
    [
        ("POST", "/jobs", {"name": "x"}, 422, "cron_expr", "cron_expr"),
        ("POST", "/jobs", SAMPLE | {"nosuch": 1}, 422, "unknown field", "nosuch"),
        ("POST", "/jobs", SAMPLE | {"timeout_seconds": 0}, 422, ">= 1", "timeout_seconds"),
        ("POST", "/jobs", SAMPLE | {"timeout_seconds": "9"}, 422, "int", "timeout_seconds"),
        ("POST", "/jobs", SAMPLE | {"body_template": "{{who}}"}, 422, "who", "body_template"),
        ("POST", "/jobs", SAMPLE | {"cron_expr": "61 * * * * *"}, 422, "second", "cron_expr"),
        ("POST", "/jobs", [1], 422, "must be a JSON object", None),
        ("PATCH", "/jobs/x", {"job": "y"}, 422, "given by the path", "job"),
        ("POST", "/batches", {"name": "x", "type": "nosuch", "count": 1}, 422, "nosuch", None),
        ("POST", "/batches", {"batch_name": "x"}, 422, "called name here", "batch_name"),
        ("POST", "/tasks", {"type": "strict", "param": {"n": 0}}, 422, "n", "param.n"),
        ("GET", "/tasks/abc", None, 422, "int", "task_id"),
        ("GET", "/tasks?limit=0", None, 422, ">= 1", "limit"),
        ("GET", "/tasks?limit=1&limit=2", None, 422, "2 times", "limit"),
        ("GET", "/tasks?nosuch=1", None, 422, "nosuch", "nosuch"),
        ("POST", "/queue/pause?type=x", None, 422, "give it in the body", "type"),
        ("GET", "/tasks/12345", None, 404, "no task 12345", None),
        ("GET", "/nosuch", None, 404, "is not served", None),
        ("GET", "/jobs/", None, 404, "is not served", None),
        ("PUT", "/jobs", {}, 405, "takes", None),
    ],
)  # fmt: skip
def test_an_error_names_the_wrong_field(
    site: Site, method: str, path: str, body: Any, status: int, words: str, field: str | None
) -> None:
    require_problem(site(method, path, body), status, words, field)


def test_405_names_the_allowed_methods(site: Site) -> None:
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


def test_an_internal_error_reveals_no_details(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_(*_: object) -> None:
        raise RuntimeError("the password is sesame")

    monkeypatch.setattr("drumline.store.task.tasks.listed", break_)
    require_problem(site("GET", "/tasks"), 500, "an internal error; see the log")


def test_an_unavailable_database_is_503_and_cached_tokens_stay_valid(
    site: Site, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise passing_fault(database)

    assert site("GET", "/tasks", by="read").status == 200
    monkeypatch.setattr("drumline.web.api_tokens.CACHE_SECONDS", -1.0)
    monkeypatch.setattr(database, "_read_once", away)
    require_problem(site("GET", "/tasks", by="read"), 503, "database cannot be reached")
    assert site("GET", "/queue", by="operate").status == 503, "this token was not cached"
