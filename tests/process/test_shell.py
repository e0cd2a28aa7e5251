"""The shell handler in real workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import Stack


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    settings = {"shell": "true", "kill_grace": 1.0, "timeout_retries": 0}
    with Stack(workers=1, **settings) as started:  # type: ignore[arg-type]
        yield started


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_commands_of_a_batch_run_with_their_targets(stack: Stack) -> None:
    param = json.dumps({"command": "echo $DRUMLINE_TARGET_ID $DRUMLINE_API_TOKEN", "shell": True})
    file = stack.home / "targets.jsonl"
    file.write_text('{"target_id": "a"}\n{"target_id": "b"}\n')
    batch_id = stack.cli("batch", "submit", "echo", "--type", "shell", "--targets", str(file),
                         "--param", param)["batch_id"]  # fmt: skip
    assert stack.wait_batch(batch_id)["status"] == "success"
    tasks = stack.call("task.list", batch_id=batch_id)["tasks"]
    outputs = {stack.call("task.show", task_id=task["id"])["result"]["stdout"] for task in tasks}
    assert outputs == {"a\n", "b\n"}


def test_a_failure_has_the_output_of_the_command(stack: Stack) -> None:
    task_id = stack.call("task.schedule", type="shell", param={"command": "ls /not/there"})[
        "task_id"
    ]
    task = stack.wait_for(lambda: _ended(stack, task_id))
    assert (task["status"], task["cause"]) == ("fail", "error")
    assert "exit code 2" in task["info"]
    assert "/not/there" in task["info"]
    assert "Traceback" not in task["info"]


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "], ids=["plain", "ignores TERM"])
def test_a_timeout_kills_the_whole_command(stack: Stack, tmp_path: Path, trap: str) -> None:
    """The shell, its child, and a child in its own session."""
    pids = [tmp_path / name for name in ("shell", "child", "daemon")]
    shell, child, daemon = pids
    script = (
        f"{trap}echo $$ >{shell}; (sleep 600 & echo $! >{child}; wait) & "
        f"setsid sh -c '{trap and 'trap : TERM; '}echo $$ >{daemon}; exec sleep 600' & wait"
    )
    task_id = stack.call(
        "task.schedule", type="shell", timeout=2, param={"command": script, "shell": True}
    )["task_id"]
    task = stack.wait_for(lambda: _ended(stack, task_id))
    assert (task["status"], task["cause"]) == ("fail", "timeout")
    for path in pids:
        assert is_gone(int(path.read_text())), path.name


def test_a_wrong_parameter_is_refused_at_submission(stack: Stack) -> None:
    done = stack.run("task", "schedule", "shell", "--param", '{"command": []}', check=False)
    assert done.returncode == 2
    assert "param.command" in done.stderr


def test_the_handler_is_off_by_default() -> None:
    with Stack(workers=1) as stack:
        done = stack.run("task", "schedule", "shell", "--param", '{"command": ["true"]}',
                         check=False)  # fmt: skip
        assert done.returncode == 2
        assert "'shell'" in done.stderr


def _ended(stack: Stack, task_id: int) -> dict[str, str] | None:
    task = stack.call("task.show", task_id=task_id)
    return task if task["finished_at"] is not None else None
