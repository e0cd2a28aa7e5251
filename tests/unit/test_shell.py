"""The shell handler: what it runs, the output it keeps, and that no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumline.domain.release import RESULT_LIMIT
from drumline.errors import WrongUse
from drumline.handlers.base import STOP_SIGNAL
from drumline.handlers.shell import CommandFailed, Shell
from drumline.runner.execute import Stopped
from drumline.testing import run


def shell(**param: Any) -> dict[str, Any]:
    result: dict[str, Any] = run(Shell, param, target_id="t-1").result
    return result


SHELL = {"shell": True}


def script(text: str, **param: Any) -> dict[str, Any]:
    return shell(command=text, **SHELL, **param)


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Whether the process is dead or ends in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
    return False


@contextmanager
def stopped_when(path: Path) -> Iterator[None]:
    """Send the keeper's stop signal once a file is not empty."""

    def strike(*_: object) -> None:
        raise Stopped

    def look() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not (path.exists() and path.read_text()):
            pass
        os.kill(os.getpid(), STOP_SIGNAL)

    before = signal.signal(STOP_SIGNAL, strike)
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(STOP_SIGNAL, before)


def test_words_are_passed_unchanged() -> None:
    result = shell(command=["printf", "%s|", "a b", "$HOME", "*"])
    assert result["stdout"] == "a b|$HOME|*|"
    assert (result["exit_code"], result["stderr"], result["cut"]) == (0, "", 0)


def test_text_is_split_into_words_without_a_shell() -> None:
    assert shell(command="printf '%s|' 'a b' $HOME ; true")["stdout"] == "a b|$HOME|;|true|"


def test_shell_is_used_when_asked_for() -> None:
    assert script("echo one | tr a-z A-Z; echo two >&2")["stdout"] == "ONE\n"
    with pytest.raises(WrongUse, match="must be a text"):
        shell(command=["true"], **SHELL)


def test_directory_environment_and_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_DATABASE_URL", "mysql://user:secret@db/x")
    monkeypatch.setenv("VAULT_TOKEN", "s3cr3t")
    result = shell(command=["env"], cwd=str(tmp_path), env={"MINE": "1"})
    names = dict(line.split("=", 1) for line in result["stdout"].splitlines())
    assert names["PWD" if "PWD" in names else "MINE"]
    assert names["MINE"] == "1"
    assert (names["DRUMLINE_TASK_ID"], names["DRUMLINE_TARGET_ID"]) == ("1", "t-1")
    assert "s3cr3t" not in result["stdout"]
    assert "mysql://" not in result["stdout"]
    assert shell(command=["pwd"], cwd=str(tmp_path))["stdout"].strip() == str(tmp_path.resolve())
    passed = script("echo $VAULT_TOKEN", pass_env=["VAULT_TOKEN"])
    assert passed["stdout"] == "s3cr3t\n"
    with pytest.raises(WrongUse, match="no variable NOT_THERE"):
        shell(command=["true"], pass_env=["NOT_THERE"])


def test_input_of_any_size_is_written() -> None:
    text = "x" * 300_000
    assert shell(command=["wc", "-c"], input=text)["stdout"].strip() == "300000"
    assert shell(command=["true"], input=text)["exit_code"] == 0  # it does not read it


def test_end_of_the_output_is_kept_and_fits_into_a_result() -> None:
    text = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"
    result = script(text)
    assert result["stdout"].endswith("line 19999\n")
    assert len(result["stdout"]) <= 16 * 1024
    assert result["cut"] > 100_000
    noise = script("head -c 100000 /dev/zero; head -c 100000 /dev/urandom >&2")
    assert len(msgspec.json.encode(noise)) < RESULT_LIMIT


def test_a_failure_names_the_exit_code_and_the_output() -> None:
    with pytest.raises(CommandFailed, match=r"exit code 3 after .* s\nout of cheese$"):
        script("echo fine; echo out of cheese >&2; exit 3")
    with pytest.raises(CommandFailed, match="the command failed: signal 9"):
        script("kill -9 $$")
    assert shell(command=["false"], ok_codes=[0, 1])["exit_code"] == 1


@pytest.mark.parametrize(
    ("param", "words"),
    [
        ({}, "command"),
        ({"command": []}, "command"),
        ({"command": "  "}, "empty"),
        ({"command": "echo 'x"}, "No closing quotation"),
        ({"command": ["/not/there"]}, "cannot be started"),
        ({"command": ["true"], "cwd": "/not/there"}, "cannot be started"),
        ({"command": ["tr\0ue"]}, "cannot be started"),
        ({"command": ["true"], "env": {"A=B": "x"}}, "env"),
        ({"command": ["true"], "comand": 1}, "comand"),
    ],
)
def test_a_wrong_parameter_is_named_in_the_error(param: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongUse, match=words):
        shell(**param)


def test_stop_ends_the_whole_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = f"sleep 600 & echo $! >{pids}.new; mv {pids}.new {pids}; wait"
    with stopped_when(pids), pytest.raises(Stopped):
        script(text)
    assert gone(int(pids.read_text()))


def test_a_stopped_command_has_a_short_time_to_clean_up(tmp_path: Path) -> None:
    ready, cleaned = tmp_path / "ready", tmp_path / "cleaned"
    text = f"trap 'echo done >{cleaned}; exit' TERM; echo 1 >{ready}; while :; do sleep 0.01; done"
    with stopped_when(ready), pytest.raises(Stopped):
        script(text)
    assert cleaned.read_text() == "done\n"

    stubborn = tmp_path / "stubborn"
    text = f"trap '' TERM; echo $$ >{stubborn}; while :; do sleep 0.01; done"
    began = time.monotonic()
    with stopped_when(stubborn), pytest.raises(Stopped):
        script(text)
    assert gone(int(stubborn.read_text()))
    assert time.monotonic() - began < 10


def test_processes_that_left_the_group_are_killed_and_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = f"setsid sh -c 'echo $$ >{pid}; while :; do echo noise; done' & " + (
        f"while [ ! -s {pid} ]; do :; done; echo over"
    )
    result = script(text)
    assert result["exit_code"] == 0
    assert gone(int(pid.read_text()))


@pytest.mark.parametrize(("value", "there"), [(None, False), ("false", False), ("true", True)])
def test_the_handler_is_off_unless_the_settings_turn_it_on(value: str | None, there: bool) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "DRUMLINE_SHELL"}
    if value is not None:
        environment["DRUMLINE_SHELL"] = value
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import drumline.handlers.shell; from drumline.handlers.registry import registry;"
            " print('shell/shell' in registry)",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(there)
