"""Batches on Kafka Connect connectors while real workers are killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stack import Stack
from tests.standin import StandIn

SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
NAMES = [f"shop-{number:03}" for number in range(500)]
FAILING = NAMES[::20]


def targets(stack: Stack, names: list[str]) -> str:
    path = stack.home / "targets.jsonl"
    path.write_text("".join(json.dumps({"target_id": name}) + "\n" for name in names))
    return str(path)


def logs(stack: Stack) -> str:
    return "".join(path.read_text() for path in (stack.run_path / "log").glob("*.log"))


def test_batch_of_500_connectors_is_changed_retried_and_rolled_back(database_url: str) -> None:
    with StandIn("--delay", "0.1", "--rebalance", "0.02") as connect:
        connect.seed("a", NAMES)
        before = connect.configs("a")
        connect.faults("a", {"method": "PATCH", "names": FAILING})
        with Stack(database_url, workers=2, connect=connect.settings()) as stack:
            param = {"replicas": 4, "system": "k8s", "set": {"max.batch.size": "9999"}}
            submitted = stack.cli(
                "batch", "submit", "resize", "--type", "cdc_change_config", "--az", "az-a",
                "--targets", targets(stack, NAMES), "--param", json.dumps(param),
            )  # fmt: skip
            assert submitted["tasks"] == 500
            batch_id = submitted["batch_id"]

            batch = stack.wait_batch(batch_id)
            assert batch["status"] == "partial_fail"
            assert batch["counts"] == {"success": 475, "fail": 25}
            now = connect.configs("a")
            changed = [name for name in NAMES if now[name]["tasks.max"] == "4"]
            assert sorted(set(NAMES) - set(changed)) == FAILING
            failed = stack.call("task.list", batch_id=batch_id, status=["fail"], limit=1)["tasks"][
                0
            ]
            info = stack.call("task.show", task_id=failed["id"])["info"]
            assert "the stand-in was told to fail" in info
            assert "Traceback" not in info

            connect.faults("a")
            stack.cli("batch", "retry", str(batch_id))
            batch = stack.wait_batch(batch_id)
            assert batch["status"] == "success"
            assert connect.configs("a") == {
                name: config | {"tasks.max": "4", "max.batch.size": "9999"}
                for name, config in before.items()
            }
            assert connect.executed_changes("a", "PATCH", "/config") == dict.fromkeys(NAMES, 1)

            stack.cli("batch", "rollback", str(batch_id))
            batch = stack.wait_batch(batch_id)
            assert batch["status"] == "rollback_success"
            assert connect.configs("a") == before
            assert connect.executed_changes("a", "PATCH", "/config") == dict.fromkeys(NAMES, 2)

            output = logs(stack) + json.dumps(
                [
                    stack.call("task.show", task_id=failed["id"]),
                    stack.call("batch.show", batch_id=1),
                ]
            )
            assert "plain-secret" not in output


@pytest.fixture(scope="module")
def connect() -> Iterator[StandIn]:
    with StandIn("--delay", "0.1", "--rebalance", "0.02") as started:
        yield started


@pytest.fixture(scope="module")
def stack(connect: StandIn) -> Iterator[Stack]:
    with Stack(workers=1, connect=connect.settings(), reap_interval=0.2) as started:
        yield started


def submit(stack: Stack, type_: str, name: str, param: Any) -> tuple[int, int]:
    """Submit a batch of one task; the ids of the batch and the task."""
    batch_id = stack.call(
        "batch.submit", batch_name=name, type=type_, az="az-a",
        targets=[{"target_id": name}], param={"system": "k8s", **param},
    )["batch_id"]  # fmt: skip
    (task,) = stack.call("task.list", batch_id=batch_id)["tasks"]
    return batch_id, task["id"]


def kill_worker_during_change(stack: Stack, connect: StandIn, cluster: str) -> None:
    """Kill the worker after Connect made the change and before it sent the response."""
    stack.wait_for(lambda: connect.held_requests(cluster) == 1, what="the change")
    killed = stack.kill("worker", signal.SIGKILL)
    connect.release(cluster)
    connect.faults(cluster)
    stack.wait_restart("worker", killed)


def test_retry_does_not_repeat_a_change_made_before_the_worker_was_killed(
    stack: Stack, connect: StandIn
) -> None:
    connect.seed("a", ["changed"])
    connect.faults("a", {"method": "PATCH", "path": "/config$", "what": "hold", "times": 1})
    batch_id, task_id = submit(stack, "cdc_change_config", "changed", {"replicas": 3})
    kill_worker_during_change(stack, connect, "a")
    assert stack.wait_batch(batch_id)["status"] == "success"
    task = stack.call("task.show", task_id=task_id)
    assert (task["deaths"], [each["cause"] for each in task["attempts"]]) == (1, ["died"])
    assert connect.configs("a")["changed"]["tasks.max"] == "3"
    assert connect.executed_changes("a", "PATCH", "/config")["changed"] == 1
    assert task["target_param"]["before_update"]["config"] == {"tasks.max": "1"}


PANAMA = {
    "source": {
        "host": "db.example", "user": "repl", "password": "${file:/secrets:db}", "server_id": 9,
    },
    "topic_prefix": "panama", "bootstrap_servers": "kafka:9092",
    "start_at": {"file": "mysql-bin.000003", "pos": 4, "gtids": f"{SOURCE}:1-77"},
}  # fmt: skip

INTERRUPTED_CHANGES = [
    ("cdc_job_start", {}, "a", "PUT", "/resume$"),
    ("cdc_job_stop", {}, "a", "PUT", "/stop$"),
    ("cdc_change_config", {"set": {"max.batch.size": "7"}}, "a", "PATCH", "/config$"),
    ("cdc_reset_gtid", {"gtids": f"{SOURCE}:1-5"}, "a", "PATCH", "/offsets$"),
    ("cdc_switch_az", {"to_az": "az-b"}, "b", "POST", "/connectors$"),
    ("cdc_switch_az", {"to_az": "az-b"}, "b", "PATCH", "/offsets$"),
    ("cdc_switch_run_system", {"to_system": "vm"}, "a", "DELETE", "/connectors/"),
    ("panama_migrate_to_cdc", PANAMA, "a", "POST", "/connectors$"),
]


@pytest.mark.parametrize(
    ("type_", "param", "cluster", "method", "path"),
    INTERRUPTED_CHANGES,
    ids=[
        f"{each[0]}-{each[3]}{each[4].rstrip('$')}".replace("/", "_")
        for each in INTERRUPTED_CHANGES
    ],
)
def test_operation_and_rollback_survive_a_worker_kill(
    stack: Stack, connect: StandIn, type_: str, param: Any, cluster: str, method: str, path: str,
) -> None:  # fmt: skip
    name = f"{type_}-{method}"
    if type_ != "panama_migrate_to_cdc":
        connect.seed("a", [name])
    if type_ == "cdc_job_start":
        batch_id, _ = submit(stack, "cdc_job_stop", name, {})
        assert stack.wait_batch(batch_id)["status"] == "success"
    before = {c: connect.configs(c).get(name) for c in ("a", "b", "vm")}
    state = connect.state("a", name)

    connect.faults(cluster, {"method": method, "path": path, "what": "hold", "times": 1})
    batch_id, task_id = submit(stack, type_, name, param)
    kill_worker_during_change(stack, connect, cluster)
    assert stack.wait_batch(batch_id)["status"] == "success"
    assert stack.call("task.show", task_id=task_id)["deaths"] == 1
    require_changed(connect, type_, name)

    stack.call("batch.rollback", batch_id=batch_id)
    assert stack.wait_batch(batch_id)["status"] == "rollback_success"
    assert {c: connect.configs(c).get(name) for c in ("a", "b", "vm")} == before
    assert connect.state("a", name) == state


def require_changed(connect: StandIn, type_: str, name: str) -> None:
    match type_:
        case "cdc_job_start":
            assert connect.state("a", name) == "RUNNING"
        case "cdc_job_stop":
            assert connect.state("a", name) == "STOPPED"
        case "cdc_change_config":
            assert connect.configs("a")[name]["max.batch.size"] == "7"
        case "cdc_reset_gtid":
            assert connect.executed_changes("a", "PATCH", "/offsets")[name] == 1
            (offset,) = [
                each["offset"] for each in connect.offsets("a", name)
                if "server" in each["partition"]
            ]  # fmt: skip
            assert int(offset["gtids"].rpartition("-")[2]) < 1000, "the offset was 1000 before"
        case "cdc_switch_az" | "cdc_switch_run_system":
            moved_to = "b" if type_ == "cdc_switch_az" else "vm"
            assert name not in connect.configs("a")
            assert connect.state(moved_to, name) == "RUNNING"
            assert connect.configs(moved_to)[name]["database.password"] == f"plain-secret-of-{name}"
        case "panama_migrate_to_cdc":
            assert connect.state("a", name) == "RUNNING"
            assert connect.configs("a")[name]["snapshot.mode"] == "recovery"
        case _:
            raise AssertionError(type_)
