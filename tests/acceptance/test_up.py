"""A running node: its commands and pages, killed processes, and its shutdown."""

import http.client
import json
import os
import re
import signal

import pytest

from tests.acceptance.node import EVERYWHERE, KINDS, figures, get
from tests.stack import Stack

# --- up ------------------------------------------------------------------------------------------


def test_status_lists_every_process(stack: Stack) -> None:
    found = stack.cli("status")
    assert {process["kind"] for process in found} == KINDS
    assert {process["state"] for process in found} <= {"running", "starting"}
    names = sorted(process["name"] for process in found if process["kind"] in ("worker", "runner"))
    assert names == ["runner-1", "runner-2", "worker-1", "worker-2"]
    for process in found:
        os.kill(process["pid"], 0)
        assert 5 < process["memory_mb"] < 100
        assert process["uptime"] >= 0


def test_run_directory_and_token_are_private_to_their_owner(stack: Stack) -> None:
    assert stack.run_path.stat().st_mode & 0o777 == 0o700
    token = stack.run_path / "api_token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text().strip()) >= 32


def test_a_second_up_is_refused(stack: Stack) -> None:
    before = stack.processes()
    second = stack.run("up", check=False)
    assert second.returncode == 5
    assert "already up" in second.stderr
    assert stack.processes() == before


def test_a_second_up_with_detach_succeeds(stack: Stack) -> None:
    before = stack.processes()
    assert "already up" in stack.run("up", "--detach").stdout
    assert stack.processes() == before


def test_the_demo_finishes(stack: Stack) -> None:
    shown = stack.run("up", "--detach", "--demo").stderr
    assert "1,000 of 1,000 tasks done" in shown
    batch_id = int(re.search(r"batch show (\d+)", shown)[1])  # type: ignore[index]
    batch = stack.call("batch.show", batch_id=batch_id)
    assert batch["counts"] == {"success": 1000}


def test_top_shows_processes_and_queue(stack: Stack) -> None:
    seen = stack.cli("top", "--once")
    assert seen["queue"]["pool_size"] == 2
    assert {process["kind"] for process in seen["processes"]} == KINDS
    assert "workers" in stack.run("top", "--once").stdout


def test_doctor_finds_no_problem_in_a_running_node(stack: Stack) -> None:
    assert {finding["level"] for finding in stack.cli("doctor")} == {"ok"}


# --- the web -------------------------------------------------------------------------------------


def test_the_node_is_healthy_and_ready(stack: Stack) -> None:
    assert get(stack, "/healthz") == (200, '{"alive":true}')
    assert get(stack, "/readyz") == (200, '{"ready":true,"missing":[]}')


def test_an_unknown_page_is_404_with_a_problem_document(stack: Stack) -> None:
    status, text = get(stack, "/nosuch")
    assert status == 404
    assert json.loads(text)["detail"] == "GET /nosuch is not served"


def test_the_node_is_not_ready_without_its_dispatcher(stack: Stack) -> None:
    pid = stack.kill("dispatcher", signal.SIGSTOP)
    try:
        status, text = get(stack, "/readyz")
        assert status == 503
        assert "dispatcher" in json.loads(text)["missing"][0]
        assert get(stack, "/healthz")[0] == 200
    finally:
        os.kill(pid, signal.SIGCONT)
    stack.wait_for(lambda: get(stack, "/readyz")[0] == 200, what="readiness")


def test_metrics_are_summed_over_processes(stack: Stack) -> None:
    before = figures(stack).get(
        'drumline_tasks_total{env="",outcome="success",type="demo.echo"}', 0.0
    )
    batch = stack.call("batch.submit", batch_name="counted", type="demo.echo", count=50)
    stack.wait_batch(batch["batch_id"])

    def counted() -> bool:
        now = figures(stack)
        done = now.get('drumline_tasks_total{env="",outcome="success",type="demo.echo"}', 0.0)
        return done == before + 50 and now["drumline_queue_capacity"] == 1000

    stack.wait_for(counted, what="50 more tasks in the metrics")


def test_metrics_count_pending_tasks_and_unfinished_batches(stack: Stack) -> None:
    stack.call("queue.pause", type="demo.flaky")
    batch = stack.call("batch.submit", batch_name="waits", type="demo.flaky", count=7)
    task = stack.call("task.schedule", type="demo.flaky")
    try:
        stack.wait_for(
            lambda: figures(stack)['drumline_backlog{status="pending"}'] == 8,
            what="8 pending tasks in the metrics",
        )
        assert figures(stack)["drumline_batches_unfinished"] == 1
        assert figures(stack)["drumline_database_up"] == 1
    finally:
        stack.call("batch.cancel", batch_id=batch["batch_id"])
        stack.call("task.cancel", task_id=task["task_id"])
        stack.call("queue.resume", type="demo.flaky")


def test_metrics_need_the_token_if_other_machines_can_reach_them() -> None:
    with Stack(workers=1, http_host=EVERYWHERE) as stack:
        assert get(stack, "/healthz")[0] == 200
        assert get(stack, "/metrics")[0] == 401
        assert get(stack, "/metrics", Authorization="Bearer wrong")[0] == 401
        token = (stack.run_path / "api_token").read_text().strip()
        assert get(stack, "/metrics", Authorization=f"Bearer {token}")[0] == 200


# --- kills ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(KINDS - {"supervisord"}))
def test_a_killed_process_is_restarted(stack: Stack, kind: str) -> None:
    killed = stack.kill(kind)
    stack.wait_restart(kind, killed)
    stack.wait_for(lambda: stack.processes().keys() == KINDS, what="all kinds of processes")
    stack.wait_for(lambda: ready(stack), what="readiness")
    batch = stack.call("batch.submit", batch_name=kind, type="demo.noop", count=20)
    assert stack.wait_batch(batch["batch_id"])["status"] == "success"


def ready(stack: Stack) -> bool:
    try:
        return get(stack, "/readyz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_the_gauges_of_a_dead_process_are_removed(stack: Stack) -> None:
    killed = stack.kill("dispatcher")
    stack.wait_restart("dispatcher", killed)

    def workers() -> float:
        now = figures(stack)
        return sum(now.get(f'drumline_workers{{state="{s}"}}', 0.0) for s in ("busy", "free"))

    stack.wait_for(lambda: workers() == 2, what="two workers in the metrics")
    assert not list((stack.run_path / "metrics").glob(f"gauge_live*_{killed}.db"))


def test_without_supervisord_the_processes_drain_and_up_starts_new_ones() -> None:
    with Stack(workers=1) as stack:
        before = stack.processes()
        stack.kill("supervisord")
        stack.wait_for(lambda: not stack.processes(), what="the end of all processes")
        stack.up()
        after = stack.processes()
        assert after.keys() == KINDS
        assert not {pid for pids in before.values() for pid in pids} & {
            pid for pids in after.values() for pid in pids
        }


# --- down ----------------------------------------------------------------------------------------


def test_after_down_no_process_is_left_and_up_restores_the_node() -> None:
    with Stack(workers=1) as stack:
        batch = stack.call("batch.submit", batch_name="kept", type="demo.noop", count=10)
        stack.wait_batch(batch["batch_id"])
        token = (stack.run_path / "api_token").read_text()
        stack.down()
        assert stack.processes() == {}
        assert not list(
            stack.run_path.glob("drumline.db-*")
        )  # SQLite has merged its WAL into the one file
        assert stack.run("status", check=False).returncode == 3
        assert json.loads(stack.run("status", "--json", check=False).stdout) == []
        assert stack.run("batch", "list", check=False).returncode == 3
        stack.down()  # a node that is down is not an error
        stack.up()
        assert (stack.run_path / "api_token").read_text() == token
        assert stack.cli("batch", "show", str(batch["batch_id"]))["status"] == "success"


def test_down_waits_for_running_tasks() -> None:
    with Stack(workers=1) as stack:
        batch = stack.call(
            "batch.submit", batch_name="slow", type="demo.sleep", count=1, param={"seconds": 1.5}
        )
        stack.wait_for(
            lambda: stack.call("batch.show", batch_id=batch["batch_id"])["counts"].get("running"),
            what="a running task",
        )
        stack.down()
        stack.up()
        shown = stack.cli("task", "list", "--batch", str(batch["batch_id"]))
        tasks = shown if isinstance(shown, list) else shown["tasks"]
        assert [(task["status"], task["attempt"]) for task in tasks] == [("success", 1)]


def test_down_ends_a_supervisord_that_is_stuck() -> None:
    with Stack(workers=1) as stack:
        stack.kill("supervisord", signal.SIGSTOP)
        stack.down()
        assert stack.processes() == {}
