"""`batch submit --dry-run` shows what the handler would change."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.stack import Stack
from tests.standin import StandIn

HANDLERS = """
import time
from pathlib import Path

from drumline import Change, Handler, Task, handler, register


class Lamp(Handler):
    types = ("lamp.on",)

    def build_param(self, task: Task) -> Change:
        if task.target_id == "broken":
            raise RuntimeError("no such lamp")
        if task.target_id == "slow":
            time.sleep(600)
        assert task.batch is not None
        return Change({"lit": task.target_id == "lit", "az": task.batch.az}, task.param)

    def is_finished(self, task: Task) -> bool:
        return task.before_update["lit"]

    def process(self, task: Task) -> None:
        Path("changed").touch()


register("lamp", Lamp)


@handler("lamp.blink")
def blink(task: Task) -> None:
    Path("changed").touch()
"""


@pytest.fixture(scope="module")
def connect() -> Iterator[StandIn]:
    with StandIn() as started:
        yield started


@pytest.fixture(scope="module")
def stack(connect: StandIn) -> Iterator[Stack]:
    settings = connect.settings()
    with Stack(workers=1, handlers=HANDLERS, connect=settings, kill_grace=0.5) as started:
        yield started


def targets(stack: Stack, *lines: object) -> str:
    path = stack.home / "targets.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def nothing_changed(stack: Stack) -> bool:
    return not (stack.home / "changed").exists() and not stack.call("batch.list")["batches"]


def test_connectors_are_read_and_not_changed(stack: Stack, connect: StandIn) -> None:
    names = [f"dry-{number}" for number in range(8)]
    connect.seed("a", names)
    before = connect.configs("a")
    lines = [{"target_id": name} for name in names]
    lines[1]["target_id"] = "missing"
    done = stack.run(
        "batch", "submit", "d", "--type", "cdc_change_config", "--az", "az-a", "--dry-run",
        "--targets", targets(stack, *lines), "--json",
        "--param", '{"replicas": 2, "system": "k8s"}', check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["tasks"], found["type"], found["target_type"]) == (8, "cdc_change_config", "cdc")
    assert [each["target_id"] for each in found["targets"]] == [
        "dry-0", "missing", "dry-2", "dry-3", "dry-4",
    ]  # fmt: skip
    first, missing, *_ = found["targets"]
    assert first["before"] == {"state": "RUNNING", "config": {"tasks.max": "1"}}
    assert first["after"] == {"config": {"tasks.max": "2"}}
    assert (first["finished"], first["error"]) == (False, None)
    assert "no connector missing in Connect cluster a" in missing["error"]
    assert connect.configs("a") == before
    assert not connect.executed_changes("a", "PATCH", "/config")
    assert nothing_changed(stack)


def test_the_text_output_shows_before_and_after(stack: Stack) -> None:
    file = targets(stack, {"target_id": "dark"}, {"target_id": "lit"})
    done = stack.run(
        "batch", "submit", "d", "--type", "lamp.on", "--targets", file, "--dry-run",
        "--az", "z", "--param", '{"level": 3}',
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "dry run: 2 tasks of type lamp.on on lamp; nothing was changed",
        "dark:",
        '  before  {"lit":false,"az":"z"}',
        '  after   {"level":3}',
        "lit:",
        '  before  {"lit":true,"az":"z"}',
        '  after   {"level":3}',
        "  already done; the handler would change nothing",
    ]
    assert nothing_changed(stack)


def test_an_error_of_the_handler_is_shown(stack: Stack) -> None:
    file = targets(stack, {"target_id": "broken"})
    done = stack.run(
        "batch", "submit", "d", "--type", "lamp.on", "--targets", file, "--dry-run", check=False
    )
    assert done.returncode == 1
    assert "  error   RuntimeError: no such lamp" in done.stdout


def test_a_handler_without_build_param_is_only_checked(stack: Stack) -> None:
    done = stack.cli("batch", "submit", "d", "--type", "lamp.blink", "--count", "7000", "--dry-run")
    assert done == {
        "dry_run": True, "tasks": 7000, "type": "lamp.blink", "target_type": "lamp.blink",
        "captures": False, "targets": [],
    }  # fmt: skip
    assert nothing_changed(stack)


def test_every_target_is_checked_and_an_invalid_one_named(stack: Stack) -> None:
    lines: list[dict[str, object]] = [{"target_id": str(n)} for n in range(6000)]
    lines[5500]["param"] = {"replicas": 0}
    done = stack.run(
        "batch", "submit", "d", "--type", "cdc_change_config", "--dry-run",
        "--targets", targets(stack, *lines), "--param", '{"replicas": 2}', check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "targets.jsonl line 5501: param.replicas: must be >= 1, not 0" in done.stderr


def test_unknown_type_is_refused(stack: Stack) -> None:
    done = stack.run("batch", "submit", "d", "--type", "no.such", "--count", "1", "--dry-run",
                     check=False)  # fmt: skip
    assert done.returncode == 2
    assert "no.such" in done.stderr


def test_a_dry_run_that_takes_too_long_is_stopped(stack: Stack) -> None:
    file = targets(stack, {"target_id": "slow"})
    done = stack.run(
        "batch", "submit", "d", "--type", "lamp.on", "--targets", file, "--dry-run",
        "--timeout", "0.2", check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "  error   timed out after 0.2 s" in done.stdout
