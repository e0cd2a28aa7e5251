"""The calls of HTTP jobs as the called service sees them, and its callbacks."""

import json
import os
import re
import time
from collections import Counter
from http.client import HTTPConnection
from typing import Any

from tests.process.job_stack import (
    HUGE,
    ONCE_A_YEAR,
    CallbackSender,
    JobStack,
    Service,
    ServiceCall,
    at,
    seconds_of,
)

SECONDS = 60 if os.environ.get("DRUMLINE_LONG_TESTS") else 8
"""Duration of the policy test."""


# --- calls ---------------------------------------------------------------------------------------


def test_calls_have_their_templates_rendered(stack: JobStack, service: Service) -> None:
    path = f"/ok-{time.time_ns()}"
    job_id = stack.job(
        "calls",
        http_method="POST",
        target_url=service.url + path + "/{{job_id}}?at={{scheduled_time}}",
        headers_json='{"X-Attempt": "{{attempt}}", "Authorization": "Bearer s3cr3t-word"}',
        body_template='{"run": "{{run_id}}", "number": {{run_id}}}',
    )
    stack.wait_runs(job_id, 3, "success")
    runs = {run["id"]: run for run in stack.wait_settled(job_id) if run["status"] == "success"}
    calls = service.calls_to(path)
    assert sorted(json.loads(seen.body)["number"] for seen in calls) == sorted(runs)
    for seen in calls:
        run = runs[json.loads(seen.body)["number"]]
        assert json.loads(seen.body)["run"] == str(run["id"])
        when = time.strftime("%Y-%m-%dT%H%%3A%M%%3A%SZ", time.gmtime(at(run)))
        assert seen.path == f"{path}/{job_id}?at={when}"
        assert seen.headers["X-Attempt"] == "1"
        assert seen.headers["Authorization"] == "Bearer s3cr3t-word"
        assert re.fullmatch(rf"00-{run['trace_id']}-[0-9a-f]{{16}}-01", seen.headers["traceparent"])
    shown = stack.task(min(runs))
    assert shown["result"]["status_code"] == 200
    assert "s3cr3t-word" not in json.dumps(shown["result"])


def test_retry_waits_as_long_as_retry_after_asks(stack: JobStack, service: Service) -> None:
    policy = '{"max_attempts": 2, "delay": 0.01, "on": ["5xx"]}'
    target = service.url + "/busy"
    stack.job("busy", cron_expr=ONCE_A_YEAR, target_url=target, retry_policy_json=policy)
    task_id = stack.call("job.trigger", job="busy")["task_id"]
    failed = stack.wait_for(lambda: (shown := stack.task(task_id))["attempts"] and shown)
    waits = at(failed, "due_at") - at(failed["attempts"][0], "finished_at")
    assert (failed["status"], round(waits)) == ("pending", 600)


def test_response_of_a_failed_call_is_stored(stack: JobStack, service: Service) -> None:
    policy = '{"max_attempts": 2, "delay": 0.01, "on": ["5xx"]}'
    broken = {
        "cron_expr": ONCE_A_YEAR,
        "target_url": service.url + "/broken",
        "http_method": "POST",
    }
    stack.job("retried", retry_policy_json=policy, **broken)
    stack.job("final", retry_policy_json='{"max_attempts": 5, "on": ["timeout"]}', **broken)
    stack.job(
        "hangs", cron_expr=ONCE_A_YEAR, target_url=service.url + "/hang", timeout_seconds=1,
        failure_action="RETRY",
    )  # fmt: skip
    ids = {name: stack.call("job.trigger", job=name)["task_id"]
           for name in ("retried", "final", "hangs")}  # fmt: skip
    shown = {name: stack.wait_task(task_id, "fail") for name, task_id in ids.items()}
    assert (shown["retried"]["attempt"], shown["final"]["attempt"]) == (2, 1)
    assert shown["retried"]["result"]["status_code"] == 500
    assert "500" in shown["retried"]["info"]
    assert (shown["hangs"]["cause"], shown["hangs"]["attempt"]) == ("timeout", 1)


POLICIES: dict[str, dict[str, Any]] = {
    "ok/allow": {"overlap_action": "ALLOW"},
    "slow/allow": {"overlap_action": "ALLOW"},
    "slow/skip": {"overlap_action": "SKIP"},
    "hang/replace": {"overlap_action": "CANCEL_PREV", "timeout_seconds": 5},
    "slow/parallel": {
        "overlap_action": "PARALLEL", "max_concurrency": 1, "concurrency_policy": "SKIP"
    },
    "slow/queue": {"max_concurrency": 1, "concurrency_policy": "QUEUE"},
    "slow/limit-skip": {"max_concurrency": 1, "concurrency_policy": "SKIP"},
    "slow/limit-parallel": {"max_concurrency": 1, "concurrency_policy": "PARALLEL"},
    "broken/skip": {"failure_action": "SKIP"},
    "broken/retry": {"failure_action": "RETRY"},
    "broken/new": {"failure_action": "RUN_NEW"},
    "broken/again": {"retry_policy_json": {"max_attempts": 3, "delay": 0.01, "on": ["5xx"]}},
    "hang/timeout": {"timeout_seconds": 1},
    "redirect/refused": {},
    "huge/bounded": {},
}  # fmt: skip
EXPECTED = {
    "ok": ("success", None),
    "slow": ("success", None),
    "huge": ("success", None),
    "broken": ("fail", "error"),
    "redirect": ("fail", "error"),
    "hang": ("fail", "timeout"),
}
SERIAL = {"slow/skip", "slow/queue", "slow/limit-skip"}


def test_every_policy_makes_one_call_per_attempt(stack: JobStack, service: Service) -> None:
    """Every second of every job is a run or a skip, and every attempt of a run is one call."""
    service.clear()
    about = "?run={{run_id}}&attempt={{attempt}}"
    for path, fields in POLICIES.items():
        stack.job(path, target_url=f"{service.url}/{path}{about}", catch_up_mode="FULL", **fields)
    stack.wait_runs("ok/allow", SECONDS, "success", deadline=SECONDS + 30)
    for path in POLICIES:
        stack.call("job.disable", job=path)
    for path in POLICIES:
        kind = path.partition("/")[0]
        runs = stack.wait_settled(path, deadline=30)
        seconds = seconds_of(runs)
        assert sorted(seconds) == list(range(min(seconds), max(seconds) + 1)), path
        called = Counter(calls_of(service, path))
        assert set(called.values()) <= {1}, f"{path}: a call was made twice"
        ended = [run for run in runs if run["status"] in ("success", "fail")]
        assert ended or path == "hang/replace"
        # A call may time out before the service reads it.
        answered = [run for run in ended if run["cause"] != "timeout"]
        wanted = {(run["id"], n + 1) for run in answered for n in range(run["attempt"])}
        begun = {(run["id"], n + 1) for run in runs for n in range(run["attempt"])}
        assert wanted <= set(called) <= begun, f"{path}: calls and runs differ"
        assert {(run["status"], run["cause"]) for run in ended} <= {EXPECTED[kind]}, path
        concurrent = service.max_concurrent[f"/{path}"]
        expected = concurrent == 1 if path in SERIAL else concurrent >= 1
        assert expected, f"{path}: {concurrent} concurrent calls"
        if path == "broken/again":
            assert {run["attempt"] for run in ended} == {3}
    assert (
        max(
            service.max_concurrent[f"/slow/{name}"]
            for name in ("allow", "parallel", "limit-parallel")
        )
        > 1
    )
    assert not service.calls_to("/ok/elsewhere"), "a redirect was followed"
    huge = stack.task(stack.runs("huge/bounded", "success")[0]["id"])["result"]
    assert len(json.dumps(huge)) < 100_000 < HUGE


def calls_of(service: Service, path: str) -> list[tuple[int, int]]:
    """The (run, attempt) of each received call."""
    about = re.compile(r"run=(\d+)&attempt=(\d+)")
    found = (about.search(seen.path) for seen in service.calls_to(f"/{path}?"))
    return [(int(match[1]), int(match[2])) for match in found if match]


# --- callbacks -----------------------------------------------------------------------------------


def test_callbacks_that_are_early_late_repeated_or_forged(
    stack: JobStack, service: Service
) -> None:
    send = CallbackSender(stack)
    early: dict[str, str] = {}

    def answer_before(seen: ServiceCall) -> None:
        if seen.path == "/begin?early":
            early["first"] = send(seen, "success", result={"rows": 3})
            early["second"] = send(seen, "failure")

    service.before_answer = answer_before
    common: dict[str, Any] = {"cron_expr": ONCE_A_YEAR, "exec_type": "ASYNC", "http_method": "POST"}
    kinds: dict[str, dict[str, Any]] = {
        "early": {},
        "usual": {},
        "reports": {"retry_policy_json": {"max_attempts": 2, "delay": 0.01}},
        "late": {"callback_timeout_sec": 1},
    }
    for name, more in kinds.items():
        url = f"{service.url}/begin?{name}"
        stack.job(f"async-{name}", target_url=url, **common | more)
    service.clear()
    ids = {name: stack.call("job.trigger", job=f"async-{name}")["task_id"]
           for name in ("early", "usual", "reports", "late")}  # fmt: skip

    shown = stack.wait_task(ids["early"], "success")
    assert early == {"first": "kept", "second": "Conflict"}
    assert shown["result"]["callback"] == {"rows": 3}
    assert shown["result"]["answer"]["status_code"] == 202

    shown = stack.wait_task(ids["usual"], "waiting_callback")
    assert shown["why"].startswith("it waits for its callback until")
    (seen,) = service.calls_to("/begin?usual")
    (other,) = stack.wait_for(
        lambda: service.calls_to("/begin?late"), what="the call of the late job"
    )
    assert send(seen, "success", token="0" * 64) == "BadToken"
    assert send(seen, "success", token=other.headers["Drumline-Callback-Token"]) == "BadToken"
    assert send(seen, "progress", message="half way") == "noted"
    assert stack.task(ids["usual"])["info"] == "half way"
    assert send(seen, "success") == "done"
    assert stack.task(ids["usual"])["status"] == "success"
    assert send(seen, "success") == send(seen, "failure") == "Conflict", (
        "a repeated callback is refused"
    )

    stack.wait_task(ids["reports"], "waiting_callback")
    (first,) = service.calls_to("/begin?reports")
    assert send(first, "failure", message="no space") == "done"
    stack.wait_for(lambda: len(service.calls_to("/begin?reports")) == 2, what="the second attempt")
    stack.wait_task(ids["reports"], "waiting_callback")
    assert send(first, "success") == "BadToken", "a token is for one attempt"
    assert send(service.calls_to("/begin?reports")[1], "failure", message="again") == "done"
    assert stack.wait_task(ids["reports"], "fail")["info"] == "again"

    shown = stack.wait_task(ids["late"], "fail")
    assert shown["cause"] == "callback_timeout"
    assert send(other, "success") == "Conflict"

    counted = counts_of(stack)
    assert counted["BadToken"] >= 3 and counted["Conflict"] >= 4 and counted["timeout"] >= 1


def counts_of(stack: JobStack) -> dict[str, float]:
    """The callback counters of /metrics, by result."""
    token = (stack.run_path / "api_token").read_text().strip()
    gateway = HTTPConnection("127.0.0.1", stack.http_port, timeout=10)
    gateway.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
    text = gateway.getresponse().read().decode()
    gateway.close()
    found = re.findall(r'drumline_callbacks_total\{result="(\w+)"\} ([\d.]+)', text)
    return {result: float(count) for result, count in found}


def test_python_handler_can_wait_for_a_callback(stack: JobStack) -> None:
    stack.job("begins", cron_expr=ONCE_A_YEAR, type="w.begin", param={"seconds": 60})
    task_id = stack.call("job.trigger", job="begins")["task_id"]
    shown = stack.wait_task(task_id, "waiting_callback")
    assert shown["result"] == {
        "began": f"http://127.0.0.1:{stack.http_port}/api/v1/callbacks/{task_id}"
    }
    token = (stack.folder / f"token-{task_id}").read_text()
    callback = {"status": "success", "message": "thanks"}
    stack.call("callback.receive", task_id=task_id, token=token, callback=callback)
    assert (stack.task(task_id)["status"], stack.task(task_id)["info"]) == ("success", "thanks")
