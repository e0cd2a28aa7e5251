"""The parameters of an HTTP call: validation by field, rendering, and masking of secrets."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.command_layer import param_schema
from drumline.domain.jobs.template import SLOT_NAMES, BadTemplate, SlotValues
from drumline.errors import WrongUse
from drumline.handlers.http.call import (
    BadCall,
    ExecType,
    HttpCall,
    HttpParam,
    job_field,
    param_of_job,
)
from drumline.handlers.http.prepare import PreparedCall, RenderedRequest, prepare
from drumline.handlers.http.result import SentRequest

TOKEN = "c0ffee" * 8
VALUES: SlotValues = {
    "run_id": 42,
    "job_id": 7,
    "scheduled_time": "2026-01-02T03:04:05Z",
    "attempt": 2,
    "callback_url": "https://d.example/api/v1/callbacks/42",
    "callback_token": TOKEN,
}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
URL = "http://api.example/jobs"


def rendered(values: SlotValues = VALUES, **param: Any) -> RenderedRequest:
    return prepare({"url": URL, **param}).render(values, PARENT)


def masked(values: SlotValues = VALUES, **param: Any) -> SentRequest:
    call = prepare({"url": URL, **param})
    return call.masked(call.render(values, PARENT), values).request


# --- validation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("param", "field", "why"),
    [
        (None, "param", "an object"),
        ([], "param", "an object"),
        ({}, "url", "missing"),
        ({"url": ""}, "url", "length"),
        ({"url": 5}, "url", "expected str"),
        ({"url": "http://h/" + "x" * 2048}, "url", "length"),
        ({"url": "ftp://h/"}, "url", "only http and https"),
        ({"url": "http://user:pw@h/"}, "url", "a user or password"),
        ({"url": "http://127.1/"}, "url", "not a dotted IPv4 address"),
        ({"url": "http://{{run_id}}/"}, "url", "the path and the query only"),
        ({"url": "http://h/{{nope}}"}, "url", "'nope' is not a known name"),
        ({"url": URL, "colour": 1}, "colour", "unknown field"),
        ({"url": URL, "method": "FETCH"}, "method", "'FETCH' is not one of"),
        ({"url": URL, "method": "GET\r\nX: y"}, "method", "is not one of"),
        ({"url": URL, "method": 5}, "method", "expected str"),
        ({"url": URL, "timeout": 0}, "timeout", "> 0"),
        ({"url": URL, "timeout": "10"}, "timeout", "expected float"),
        ({"url": URL, "timeout": 1e9}, "timeout", "<="),
        ({"url": URL, "exec_type": "LATER"}, "exec_type", "LATER"),
        ({"url": URL, "callback_timeout": -1}, "callback_timeout", "> 0"),
        ({"url": URL, "headers": "{"}, "headers", "not JSON"),
        ({"url": URL, "headers": "[1]"}, "headers", "expected object"),
        ({"url": URL, "headers": {"X-A": 1}}, "headers.X-A", "a string, not int"),
        ({"url": URL, "headers": {"X A": "b"}}, "headers.X A", "not a valid header name"),
        ({"url": URL, "headers": {"X-A\r\n": "b"}}, "headers.X-A\r\n", "not a valid header name"),
        ({"url": URL, "headers": {"": "b"}}, "headers.", "not a valid header name"),
        ({"url": URL, "headers": {"X-A": "b\r\nX-B: c"}}, "headers.X-A", "control character"),
        ({"url": URL, "headers": {"X-A": "{{nope}}"}}, "headers.X-A", "'nope'"),
        ({"url": URL, "headers": {"Host": "evil"}}, "headers.Host", "itself"),
        ({"url": URL, "headers": {"content-length": "1"}}, "headers.content-length", "itself"),
        ({"url": URL, "headers": {"Connection": "x"}}, "headers.Connection", "itself"),
        ({"url": URL, "headers": {"traceparent": "x"}}, "headers.traceparent", "itself"),
        ({"url": URL, "headers": {"X-A": "1", "x-a": "2"}}, "headers", "occurs twice"),
        ({"url": URL, "headers": {f"X-{i}": "" for i in range(65)}}, "headers", "more than 64"),
        ({"url": URL, "headers": {"X-A": "x" * 20_000}}, "headers", "characters"),
        ({"url": URL, "body": 5}, "body", "expected str"),
        ({"url": URL, "body": "x" * 65_537}, "body", "length"),
        ({"url": URL, "body": '{"a": "{{nope}}"}'}, "body", "'nope'"),
        ({"url": URL, "body": "\ud800"}, "body", "half a surrogate pair"),
        (
            {"url": URL, "body": "{", "headers": {"content-type": "application/json"}},
            "body",
            "not JSON",
        ),
        (
            {"url": URL, "body": "ä", "headers": {"Content-Type": "text/plain; charset=latin-1"}},
            "headers.Content-Type",
            "UTF-8",
        ),
        ({"url": URL, "retry": {"max_attempts": 0}}, "retry.max_attempts", ">= 1"),
        ({"url": URL, "retry": {"tries": 3}}, "retry.tries", "unknown field"),
        ({"url": URL, "retry": {"on": ["2xx"]}}, "retry.on", "'2xx'"),
        ({"url": URL, "retry": {"on": [200]}}, "retry.on", "200"),
        ({"url": URL, "retry": {"on": ["refused"]}}, "retry.on", "'refused'"),
        ({"url": URL, "retry": {"jitter": 2}}, "retry.jitter", "<= 1"),
        ({"url": URL, "retry": "{"}, "retry", "not JSON"),
    ],
)  # fmt: skip
def test_invalid_field_is_named(param: object, field: str, why: str) -> None:
    with pytest.raises(WrongUse) as caught:
        prepare(param)
    assert isinstance(caught.value, BadCall | BadTemplate)
    assert caught.value.details["field"] == field
    assert str(caught.value).startswith(f"{field} is wrong: ")
    assert why in str(caught.value)


def test_fields_of_a_job_are_mapped_to_those_of_a_call() -> None:
    job = {
        "name": "nightly",
        "cron_expr": "*/15 * * * * *",
        "exec_type": "SYNC",
        "http_method": "POST",
        "target_url": "http://api.example/run",
        "headers_json": '{"Content-Type": "application/json"}',
        "body_template": '{"id": "{{run_id}}"}',
        "timeout_seconds": 10,
        "retry_policy_json": None,
        "callback_timeout_sec": "",
    }
    call = prepare(param_of_job(job)).call
    assert call == HttpCall(
        url="http://api.example/run",
        method="POST",
        headers={"Content-Type": "application/json"},
        body='{"id": "{{run_id}}"}',
        timeout=10,
    )
    assert call.task_timeout == 15
    assert job_field("url") == "target_url"
    assert job_field("headers.X-A") == "headers_json.X-A"
    assert job_field("retry.on") == "retry_policy_json.on"
    assert job_field("exec_type") == "exec_type"


@pytest.mark.parametrize(
    "param",
    [
        {"url": URL},
        {"url": URL, "headers": '{"A": "b"}', "body": {"a": 1}, "retry": '{"max_attempts": 2}'},
        {"url": URL, "headers": {"A": "b"}, "body": "x", "retry": {"on": ["5xx", 429]}},
        {"url": URL, "headers": None, "body": None, "retry": None, "exec_type": "ASYNC"},
        {"url": URL, "headers": "", "retry": ""},
    ],
)
def test_valid_params_match_the_published_schema(param: dict[str, Any]) -> None:
    param_schema.require(msgspec.json.schema(HttpParam), param)
    prepare(param)
    with pytest.raises(WrongUse, match="timeout"):
        param_schema.require(msgspec.json.schema(HttpParam), {**param, "timeout": 0})


# --- rendering ------------------------------------------------------------------------------------


def test_request_has_default_method_timeout_and_headers() -> None:
    get, post = prepare({"url": URL}), prepare({"url": URL, "body": "x"})
    assert (get.method, post.method) == ("GET", "POST")
    assert prepare({"url": URL, "method": "put", "body": "x"}).method == "PUT"
    assert get.call.timeout == 15
    assert get.call.exec_type is ExecType.SYNC
    request = get.render(VALUES, PARENT)
    assert request == RenderedRequest(
        URL,
        {
            "User-Agent": "drumline",
            "Accept": "*/*",
            "Accept-Encoding": "gzip, deflate",
            "traceparent": PARENT,
        },
        None,
    )
    assert rendered(headers={"user-agent": "me"}).headers["user-agent"] == "me"
    assert "User-Agent" not in rendered(headers={"user-agent": "me"}).headers


def test_templates_are_rendered_in_url_headers_and_body() -> None:
    request = rendered(
        url="https://API.example:443/a b/{{job_id}}?at={{scheduled_time}}",
        headers={"X-Run": "{{run_id}}/{{attempt}}"},
        body={"id": "{{run_id}}", "back": ["{{callback_url}}"]},
    )
    assert request.url == "https://api.example/a%20b/7?at=2026-01-02T03%3A04%3A05Z"
    assert request.headers["X-Run"] == "42/2"
    assert request.headers["Content-Type"] == "application/json"
    assert json.loads(request.body or "") == {"id": "42", "back": [VALUES["callback_url"]]}


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        (None, '{"t": "{{callback_token}}"}', '{"t": "a\\"&b"}'),
        (None, "t {{callback_token}}", 't a"&b'),
        ("application/vnd.api+json; charset=UTF-8", '["{{callback_token}}"]', '["a\\"&b"]'),
        ("application/x-www-form-urlencoded", "t={{callback_token}}", "t=a%22%26b"),
        ("text/xml", "<t>{{callback_token}}</t>", "<t>a&quot;&amp;b</t>"),
        ("application/soap+xml", "<t>{{callback_token}}</t>", "<t>a&quot;&amp;b</t>"),
        ("text/csv", "{{callback_token}},1", 'a"&b,1'),
        ("application/octet-stream", '{"t": {{callback_token}}}', '{"t": a"&b}'),
    ],
)
def test_the_content_type_decides_how_a_body_is_encoded(
    content_type: str | None, body: str, expected: str
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    values = {**VALUES, "callback_token": 'a"&b'}
    assert rendered(values, headers=headers, body=body).body == expected


def test_async_call_adds_callback_headers_unless_its_templates_have_them() -> None:
    added = rendered(exec_type="ASYNC").headers
    assert added["Drumline-Callback-Url"] == VALUES["callback_url"]
    assert added["Drumline-Callback-Token"] == TOKEN
    own = rendered(exec_type="ASYNC", body='{"u": "{{callback_url}}", "t": "{{callback_token}}"}')
    assert not [name for name in own.headers if name.startswith("Drumline-")]
    half = rendered(exec_type="ASYNC", headers={"X-T": "{{callback_token}}"}).headers
    assert "Drumline-Callback-Url" in half and "Drumline-Callback-Token" not in half
    assert not [name for name in rendered(exec_type="SYNC").headers if name.startswith("Drumline-")]


@given(st.fixed_dictionaries({name: st.text() | st.integers() for name in SLOT_NAMES}))
def test_request_is_valid_for_any_slot_values(values: SlotValues) -> None:
    call = prepare(
        {
            "url": "http://h/?a={{run_id}}&b={{callback_token}}",
            "headers": {"X-A": "{{scheduled_time}}", "X-Token": "{{callback_token}}"},
            "body": '{"a": "{{job_id}}", "t": {{callback_token}}}',
            "exec_type": "ASYNC",
        }
    )
    request = call.render(values, PARENT)
    assert request.url.isascii()
    assert all("\r" not in v and "\n" not in v for v in request.headers.values())
    assert json.loads((request.body or "").encode())["t"] == values["callback_token"]
    call.masked(request, values)


# --- masking --------------------------------------------------------------------------------------


def test_secrets_are_masked_in_a_stored_request() -> None:
    request = masked(
        url="http://h/{{callback_token}}?api_key=k123456&x=1&t={{callback_token}}",
        headers={
            "Authorization": "Bearer hunter2hunter2",
            "Cookie": "session=hunter3hunter3; a=b",
            "X-Api-Key": "hunter4hunter4",
            "X-My-Secret-Thing": "hunter5hunter5",
            "X-Echo": "hunter2hunter2 and {{callback_token}}",
            "X-Plain": "visible",
        },
        body={
            "password": "hunter6",
            "nested": {"client_secret": {"a": ["hunter7", "}"]}, "plain": "visible"},
            "echo": "hunter4hunter4",
            "t": "{{callback_token}}",
        },
    )
    text = msgspec.json.encode(request).decode()
    assert "hunter" not in text and "k123456" not in text and TOKEN not in text
    assert request.url == "http://h/***?api_key=***&x=1&t=***"
    assert request.headers["Authorization"] == "***"
    assert request.headers["X-Echo"] == "*** and ***"
    assert request.headers["X-Plain"] == "visible"
    assert request.headers["traceparent"] == PARENT
    assert json.loads(request.body or "") == {
        "password": "***",
        "nested": {"client_secret": "***", "plain": "visible"},
        "echo": "***",
        "t": "***",
    }


def test_secret_header_rendered_from_a_template_is_masked() -> None:
    request = masked(
        headers={"X-Auth-Token": "run-{{run_id}}-{{callback_token}}"}, body=f"run-42-{TOKEN}"
    )
    assert request.headers["X-Auth-Token"] == "***"
    assert request.body == "***"


@pytest.mark.parametrize("before", range(8_180, 8_200))
def test_secret_that_is_cut_off_is_masked_entirely(before: int) -> None:
    secret = "S3CRET-" + "x" * 40
    request = masked(headers={"Authorization": secret}, body="a" * before + secret + "b" * 100)
    assert request.truncated
    assert "S3C" not in (request.body or "")
    assert (request.body or "").startswith("a" * 8_000)


@given(
    st.text(max_size=40_000), st.text(st.characters(codec="utf-8"), max_size=8_000), st.integers()
)
def test_stored_request_has_a_limited_size_in_json(body: str, header: str, run: int) -> None:
    # Any text without a template.
    header = "".join(c for c in header if c.isprintable()).replace("{", "(")
    body = body.replace("{", "(")
    request = masked(
        {**VALUES, "run_id": run, "callback_url": "\x01" * 5_000},
        body=body,
        headers={"X-A": header, "X-B": header, "X-C": "{{callback_url}}", "Content-Type": "text/x"},
    )
    assert len(msgspec.json.encode(request)) < 22 * 1024


def test_prepared_call_is_shared_by_runs_and_keeps_no_values_of_them() -> None:
    call = prepare({"url": URL, "exec_type": "ASYNC", "headers": {"X-Run": "{{run_id}}"}})
    assert isinstance(call, PreparedCall)
    first = call.render(VALUES, PARENT)
    second = call.render({**VALUES, "run_id": 43, "callback_token": "other-token"}, PARENT)
    assert (first.headers["X-Run"], second.headers["X-Run"]) == ("42", "43")
    assert TOKEN not in str(second)
