"""Jobs on a running node: policies, catch-up, the CLI, and a ticker that is killed."""

import json
import signal
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.process.job_stack import ONCE_A_YEAR, JobStack, Service, at, seconds_of, wait_until

JOBS = 8
"""Jobs of each kind, all firing every second, when the ticker is killed."""


# --- firing policies -----------------------------------------------------------------------------


def test_every_firing_policy_on_a_running_node(stack: JobStack) -> None:
    """All policies at the same time, firing every second; a gate file decides when runs end."""
    gated: dict[str, Any] = {"type": "w.gate", "param": {"gate": "open"}}
    one = {"max_concurrency": 1}
    jobs: dict[str, dict[str, Any]] = {
        "overlap-skip": gated | {"overlap_action": "SKIP"},
        "cancel-prev": {
            "type": "w.gate",
            "param": {"gate": "late"},
            "overlap_action": "CANCEL_PREV",
        },
        "parallel": gated | one | {"overlap_action": "PARALLEL", "concurrency_policy": "SKIP"},
        "limit-skip": gated | {"max_concurrency": 2, "concurrency_policy": "SKIP"},
        "limit-parallel": gated | one | {"concurrency_policy": "PARALLEL"},
        "queue": gated | one,
        "allow": gated,
        "fail-skip": {"type": "w.fail", "failure_action": "SKIP"},
        "fail-retry": {"type": "w.fail", "failure_action": "RETRY"},
        "fail-new": {"type": "w.fail", "failure_action": "RUN_NEW"},
    }
    ids = {name: stack.job(name, **fields) for name, fields in jobs.items()}
    stack.wait_runs("overlap-skip", 2, "skipped")
    stack.wait_runs("limit-skip", 2, "skipped")
    stack.wait_runs("queue", 3, "scheduled")
    for name in ("parallel", "limit-parallel", "allow"):
        stack.wait_runs(name, 3, "running")
    stack.wait_runs("cancel-prev", 3, "cancel")
    stack.wait_runs("fail-skip", 2, "skipped")
    stack.wait_runs("fail-retry", 3, "fail")
    stack.wait_runs("fail-new", 3, "fail")
    running = {name: stack.runs(name, "running") for name in ids}
    stack.open_gate("open")
    stack.wait_runs("queue", 4, "success")
    stack.wait_runs("overlap-skip", 2, "success")
    stack.call("job.disable", job="cancel-prev")
    stack.open_gate("late")
    runs = {name: stack.wait_settled(name) for name in ids}
    begun = Counter(note.task_id for note in stack.notes(word="begin"))

    for name, found in runs.items():
        assert len(set(seconds_of(found))) == len(found), f"{name}: a second has one run"
        unstarted = {"skipped"} | ({"cancel"} if name == "cancel-prev" else set())
        for run in found:
            if run["status"] not in unstarted and run["attempt"]:
                assert begun[run["id"]] == 1, (
                    f"{name}: run {run['id']} ran {begun[run['id']]} times"
                )
            if run["status"] == "skipped":
                assert begun[run["id"]] == 0 and run["reason"], f"{name}: a skip has its reason"

    assert len(running["overlap-skip"]) == 1
    assert {run["cause"] for run in runs["overlap-skip"] if run["status"] == "skipped"} == {
        "overlap"
    }
    assert len(running["limit-skip"]) == 2
    assert {run["cause"] for run in runs["limit-skip"] if run["status"] == "skipped"} == {
        "concurrency"
    }
    for name in ("parallel", "limit-parallel", "allow"):
        assert len(running[name]) >= 3
        assert {run["status"] for run in runs[name]} <= {"success", "cancel"}

    assert len(running["queue"]) == 1
    spans = spans_of(stack, ids["queue"])
    assert len(spans) >= 4
    assert not overlapping(spans), "queued runs overlap"
    order = [run["id"] for run in runs["queue"]]
    assert [task_id for _, _, task_id in spans] == [i for i in order if begun[i]], (
        "queued runs start in order"
    )

    replaced = spans_of(stack, ids["cancel-prev"])
    assert len(replaced) >= 2
    assert not overlapping(replaced), "a replaced run ends before the new one starts"
    assert {run["status"] for run in runs["cancel-prev"][:-1]} == {"cancel"}

    # A firing counts the failure before it only if that run has ended by then. On a busy machine
    # that may take more than the second between them, so not every firing increments the number.
    numbers = [(run["status"], run["run_attempt"]) for run in runs["fail-skip"]]
    triples = list(zip(numbers, numbers[1:], numbers[2:], strict=False))
    assert (("fail", 1), ("skipped", 2), ("fail", 3)) in triples
    skips = [run for run in runs["fail-skip"] if run["status"] == "skipped"]
    assert {run["cause"] for run in skips} == {"failure"}
    assert not any(one[0] == next_[0] == "skipped" for one, next_, _ in triples)
    tries = [run["run_attempt"] for run in runs["fail-retry"]]
    assert tries[0] == 1 and max(tries) >= 3
    assert {later - earlier for earlier, later in pairwise(tries)} <= {0, 1}
    assert {run["run_attempt"] for run in runs["fail-new"]} == {1}
    assert {run["cause"] for run in runs["fail-new"] if run["status"] == "fail"} == {"error"}


def spans_of(stack: JobStack, job_id: int) -> list[tuple[int, int, int]]:
    """The start, end and id of each run of a job as recorded by its handler, in order."""
    ends = {note.task_id: note.at for note in stack.notes(job_id, "end")}
    return sorted((n.at, ends[n.task_id], n.task_id) for n in stack.notes(job_id, "begin"))


def overlapping(spans: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [(one, two) for (_, end, one), (start, _, two) in pairwise(spans) if start < end]


def test_plain_firings_are_queued_before_they_are_due(stack: JobStack) -> None:
    job_id = stack.job("ahead", type="w.tick")

    def held_ready() -> bool:
        waiting = stack.call("task.list", type="w.tick", status=["pending"])["tasks"]
        return any(one["job_id"] == job_id and at(one, "due_at") > time.time() for one in waiting)

    stack.wait_for(held_ready, what="a firing that is pending before it is due")
    for run in stack.wait_runs(job_id, 3, "success"):
        assert at(run, "started_at") >= at(run), "a run started before it was due"
    stack.wait_settled(job_id)


def test_fixed_delay_is_counted_from_the_end_of_a_run(stack: JobStack) -> None:
    job_id = stack.job("after", cron_expr="@after 1s", type="w.fail")
    found = stack.wait_runs(job_id, 3, "fail")
    for earlier, later in pairwise(found):
        assert at(later) == pytest.approx(at(earlier, "finished_at") + 1, abs=0.001)
        assert at(later, "started_at") >= at(later)
    stack.wait_settled(job_id)


def test_failed_run_is_retried_unless_it_raises_no_retry(stack: JobStack) -> None:
    policy = {"max_attempts": 3, "delay": 0.05, "jitter": 0}
    stack.job("tries", cron_expr=ONCE_A_YEAR, type="w.fail", retry_policy_json=policy)
    stack.job("never", cron_expr=ONCE_A_YEAR, type="w.never")
    tried = stack.call("job.trigger", job="tries")["task_id"]
    never = stack.call("job.trigger", job="never")["task_id"]
    shown = stack.wait_task(tried, "fail")
    assert (shown["attempt"], shown["run_attempt"], len(shown["attempts"])) == (3, 1, 3)
    shown = stack.wait_task(never, "fail")
    assert shown["attempt"] == 1, "NoRetry overrides the handler's five retries"
    assert "there is no such account" in shown["info"]


def test_disabled_job_starts_no_further_run(stack: JobStack) -> None:
    stack.job("clock", type="w.tick")
    job_id = stack.job("stopped", type="w.tick", overlap_action="SKIP")
    stack.wait_runs(job_id, 2, "success")
    stack.call("job.disable", job="stopped")
    disabled = time.time()
    before = {run["id"]: run["status"] for run in stack.runs(job_id)}
    stack.wait_for(
        lambda: any(at(run) > disabled + 1 for run in stack.runs("clock", "success")),
        what="another job to fire twice",
    )
    assert {run["id"] for run in stack.runs(job_id)} == set(before)
    assert all(note.at / 1e6 <= disabled + 0.5 for note in stack.notes(job_id, "begin"))
    stack.wait_settled("clock")


def test_update_applies_to_the_next_firing(stack: JobStack) -> None:
    job_id = stack.job("changes", type="w.tick", param={"v": 1})
    stack.wait_runs(job_id, 1, "success")
    stack.call("job.update", job="changes", param={"v": 2})
    changed = time.time()
    stack.wait_for(
        lambda: any(at(run) > changed for run in stack.runs(job_id, "success")),
        what="a firing after the change",
    )
    for run in stack.wait_settled(job_id):
        if run["status"] == "success" and at(run) > changed:
            assert stack.task(run["id"])["result"] == {"v": 2}
    assert len(set(seconds_of(stack.runs(job_id)))) == len(stack.runs(job_id))


# --- the command line ----------------------------------------------------------------------------


def test_jobs_from_the_command_line(stack: JobStack, service: Service, tmp_path: Path) -> None:
    body = {
        "name": "from-file", "description": "d", "cron_expr": "*/15 * * * * *",
        "exec_type": "SYNC", "http_method": "POST", "target_url": service.url + "/ok",
        "headers_json": '{"Content-Type": "application/json"}',
        "body_template": '{"id": "{{run_id}}"}', "timeout_seconds": 10, "max_concurrency": 1,
        "concurrency_policy": "QUEUE", "overlap_action": "SKIP", "failure_action": "RUN_NEW",
        "status": "DISABLED",
    }  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(body))
    (tmp_path / "job.toml").write_text('cron_expr = "@daily 08:00"\ntype = "w.tick"\n')
    made = stack.cli("job", "create", "--file", str(tmp_path / "job.json"))
    assert made["max_concurrency"] == 1
    made = stack.cli("job", "create", "toml", "--file", str(tmp_path / "job.toml"))
    assert made["cron_expr"] == "@daily 08:00"
    stack.run(
        "job", "create", "flags", "--cron", "0 6 * * mon-fri", "--timezone", "Europe/Berlin",
        "--url", service.url + "/ok", "--header", "X-A: b", "--body", "hello", "--overlap", "skip",
    )  # fmt: skip
    shown = stack.cli("job", "show", "flags")
    assert (shown["http_method"], shown["headers_json"]) == ("POST", '{"X-A":"b"}')
    assert shown["overlap_action"] == "SKIP"
    updated = stack.cli("job", "update", "flags", "--version", "1", "--max-concurrency", "1")
    assert updated["version"] == 2
    stale = stack.run("job", "update", "flags", "--version", "1", "--priority", "3", check=False)
    assert (stale.returncode, stale.stderr.count("\n")) == (5, 1)
    bad = stack.run("job", "create", "x", "--cron", "61 * * * *", "--type", "w.tick", check=False)
    assert bad.returncode == 2 and "minute field" in bad.stderr
    assert stack.run("job", "show", "missing", check=False).returncode == 4
    fired = stack.cli("job", "trigger", "flags")
    assert fired["done"] == "runs"
    stack.wait_task(fired["task_id"], "success")
    assert [run["status"] for run in stack.cli("job", "runs", "flags")["runs"]] == ["success"]
    firings = stack.cli("job", "next", "0 30 2 * * *", "--timezone", "Europe/Berlin")["firings"]
    assert len(firings) == 5
    stack.run("job", "enable", "from-file")
    stack.run("job", "delete", "from-file")
    assert "from-file" not in stack.run("job", "list").stdout


# --- a killed ticker -----------------------------------------------------------------------------


def test_firings_survive_two_ticker_kills(stack: JobStack) -> None:
    """The ticker is suspended for four seconds and then killed, twice.

    With FULL every second has exactly one run; with NONE and COMPACT missed seconds are recorded.
    """
    quick = {"type": "w.tick", "misfire_grace_seconds": 2}
    for n in range(JOBS):
        stack.job(f"full-plain-{n}", catch_up_mode="FULL", **quick)
        stack.job(f"full-policy-{n}", catch_up_mode="FULL", overlap_action="ALLOW",
                  max_concurrency=50, **quick)  # fmt: skip
        stack.job(f"none-{n}", catch_up_mode="NONE", failure_action="RETRY", **quick)
        stack.job(f"compact-{n}", catch_up_mode="COMPACT", failure_action="RETRY", **quick)
    names = [f"{kind}-{n}" for kind in ("full-plain", "full-policy", "none", "compact")
             for n in range(JOBS)]  # fmt: skip
    outages: list[tuple[float, float]] = []
    for _ in range(2):
        begun = len(stack.runs("none-0", "success"))
        stack.wait_runs("none-0", begun + 2, "success")
        killed = stack.kill("ticker", signal.SIGSTOP)
        stopped = time.time()
        wait_until(stopped + 4)
        stack.kill("ticker", signal.SIGKILL)
        stack.wait_restart("ticker", killed)
        before = len(stack.runs("none-0", "success"))
        stack.wait_runs("none-0", before + 2, "success")
        outages.append((stopped, time.time()))
    found = {name: stack.wait_settled(name, deadline=40) for name in names}
    begun_ids = Counter(note.task_id for note in stack.notes(word="begin"))
    for name, runs in found.items():
        seconds = seconds_of(runs)
        assert len(set(seconds)) == len(seconds), f"{name}: a second fired twice"
        started = [run for run in runs if run["status"] == "success"]
        assert all(begun_ids[run["id"]] == 1 for run in started), name
        gaps = [run for run in runs if run["cause"] == "misfire" and "missed" in run["reason"]]
        missed = sum(int(run["reason"].split()[0]) for run in gaps)
        rows = [run for run in runs if run not in gaps]
        span = range(seconds[0], max(seconds_of(rows)) + 1)
        if name.startswith("full"):
            assert not gaps, f"{name}: {gaps}"
            assert seconds_of(rows) == list(span), f"{name}: a second is missing"
        else:
            assert len(rows) + missed == len(span), f"{name}: a missed second is not recorded"
            for stopped, ended in outages:
                recorded = [gap for gap in gaps if stopped < at(gap) < ended]
                assert recorded, f"{name}: no misfire is recorded for the outage at {stopped}"
