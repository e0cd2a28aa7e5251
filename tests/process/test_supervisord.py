"""supervisord forks the processes of a node: what they inherit and what they must not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.config import Settings
from drumline.errors import WrongUse
from drumline.node import launch, run_dir, shutdown, supervisor
from tests.stack import Stack

INSPECTION = """
import os, sys, threading
before = set(os.listdir("/proc/self/fd"))
import actors.supervisord
for name in actors.supervisord.SHARED:
    __import__(name)
print(threading.active_count(), len(os.listdir("/proc/self/task")))
print(sorted(set(os.listdir("/proc/self/fd")) - before))
print("drumline.telemetry.metrics" in sys.modules)
"""


def python(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_imports_before_the_fork_open_no_file_and_start_no_thread(tmp_path: Path) -> None:
    done = python("-c", INSPECTION, PROMETHEUS_MULTIPROC_DIR=str(tmp_path))
    assert done.stdout.splitlines() == ["1 1", "[]", "False"], done.stderr
    assert not list(tmp_path.iterdir())


def test_supervisord_starts_nothing_if_its_parent_ends_first(tmp_path: Path) -> None:
    ended = python("-m", "actors.supervisord", "-c", str(tmp_path / "none.conf"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")


def test_a_failed_start_leaves_no_process_and_no_lock() -> None:
    stack = Stack(handlers="raise OSError('no such luck')")
    try:
        failed = stack.run("up", "--detach", check=False)
        assert failed.returncode == 2
        assert failed.stderr.splitlines()[-1].endswith("OSError: no such luck")
        assert stack.processes() == {}
        (stack.home / "own_handlers.py").write_text("")
        stack.up()  # the lock is free
    finally:
        stack.close()


def test_a_supervisord_that_the_drain_does_not_see_ends_after_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start_supervisord = supervisor.start_supervisord

    def start(settings: Settings, lock: int) -> subprocess.Popen[bytes]:
        started.append(start_supervisord(settings, lock))
        return started[-1]

    def fail(*_: object) -> str:
        raise WrongUse(reason="refused at once")

    monkeypatch.setattr(supervisor, "start_supervisord", start)
    monkeypatch.setattr(launch, "prepare", fail)
    monkeypatch.setattr(shutdown, "drain", lambda *_: None)
    settings = Settings(run_dir=str(tmp_path))
    run_dir.make_run_dir(settings)
    lock = supervisor.acquire_lock(settings.run_path)
    assert lock is not None
    try:
        with pytest.raises(WrongUse, match="refused at once"):
            launch.start(settings, lock, lambda _: None)
        assert started[0].wait(30) == 1
    finally:
        os.close(lock)


def test_a_forked_process_has_its_own_name_signals_and_files() -> None:
    with Stack(workers=1) as stack:
        for kind, (pid,) in stack.processes().items():
            if kind in ("supervisord", "runner"):
                continue
            name = "worker-1" if kind == "worker" else kind
            words = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
            assert words == ["drumline", "actor", name]
            handled = signals_of(pid, "SigCgt")
            assert signal.SIGTERM in handled  # its own
            assert not handled & {signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2}  # supervisord's
            opened = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
            assert not any("supervisord" in path or "up.lock" in path for path in opened)


def test_an_uncaught_error_is_logged_and_the_process_is_restarted() -> None:
    with Stack(workers=1) as stack:
        metrics = stack.run_path / "metrics"
        metrics.rename(stack.run_path / "elsewhere")
        metrics.touch()  # no process can start while a file is in place of the directory
        killed = stack.kill("scanner")
        log = stack.run_path / "log" / "scanner.log"
        stack.wait_for(lambda: "FileExistsError" in log.read_text(), what="the traceback")
        metrics.unlink()
        metrics.mkdir()
        stack.wait_restart("scanner", killed)
        stack.wait_for(
            lambda: [line["action"] for line in stack.log("scanner")].count("ready") == 2,
            what="the scanner to be ready again",
        )


def test_a_reload_restarts_all_processes() -> None:
    with Stack(workers=1) as stack:
        before = stack.processes()
        stack.kill("supervisord", signal.SIGHUP)

        def others() -> bool:
            now = stack.processes()
            return now.keys() == before.keys() and all(
                now[kind] != pids for kind, pids in before.items() if kind != "supervisord"
            )

        stack.wait_for(others, what="new processes of all kinds")
        assert stack.processes()["supervisord"] == before["supervisord"]


def signals_of(pid: int, field: str) -> set[int]:
    """A set of signals from /proc."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(line for line in status.splitlines() if line.startswith(field)).split()[1], 16)
    return {number + 1 for number in range(64) if mask >> number & 1}
