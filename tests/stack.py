"""A whole node of real processes, for tests that start, kill and watch them.

    with Stack(database_url, workers=2) as stack:
        batch = stack.call("batch.submit", batch_name="b", type="demo.noop", count=100)
        stack.kill("dispatcher")
        assert stack.wait_batch(batch["batch_id"])["status"] == "success"

It has its own directory, port and processes, and all of them are removed at the end of the block.
If the test failed, the last lines of the logs are printed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from drumline.client.control import Control
from drumline.config import Settings
from drumline.errors import NotReachable
from drumline.node import run_dir
from drumline.system import processes, procfs
from tests.ports import free_port

if TYPE_CHECKING:  # bin/bench runs where pytest is not installed
    import pytest

T = TypeVar("T")
S = TypeVar("S", bound="Stack")

PROGRAM = Path(sys.executable).parent / "drumline"
COMMAND_SECONDS = 120.0
FIRST_POLL_SECONDS = 0.005
POLL_SECONDS = 0.05
"""Polling more often takes CPU time from the processes under test."""
LOG_LINES = 15
FINAL = {"success", "fail", "partial_fail", "cancel", "rollback_success", "rollback_fail"}


class Stack:
    """One node. Settings are named as in `drumline.config.Settings`."""

    def __init__(
        self,
        database_url: str = "",
        *,
        workers: int = 2,
        handlers: str = "",
        imports: tuple[str, ...] = (),
        **settings: object,
    ) -> None:
        # pytest's tmp_path is too long for the path of a unix socket.
        self.home = Path(tempfile.mkdtemp(prefix="dl-"))
        self.run_path = self.home / "run"
        self.http_port = free_port()
        if handlers:
            (self.home / "own_handlers.py").write_text(handlers)
            imports = (*imports, "own_handlers")
        values: dict[str, object] = {
            "run_dir": self.run_path,
            "http_port": self.http_port,
            "workers": workers,
            "imports": ",".join(imports),
            **({"database_url": database_url} if database_url else {}),
            **settings,
        }
        # A process ignores a variable that names no setting, and would run with the default.
        assert not values.keys() - set(Settings.__struct_fields__)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DRUMLINE_")}
        named = {f"DRUMLINE_{name.upper()}": str(value) for name, value in values.items()}
        self.environment: dict[str, str] = inherited | named
        self._control: Control | None = None
        self._before: dict[str, set[int]] = {}

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.close(show_logs=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(show_logs=error is not None)

    # --- commands --------------------------------------------------------------------------------

    def up(self, *arguments: str) -> None:
        """Start all processes; returns when the node is ready for work."""
        self.run("up", "--detach", *arguments)

    def down(self) -> None:
        """Drain and stop all processes."""
        self.run("down")

    def cli(self, *arguments: str) -> Any:
        """Run a command with --json; the decoded output."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def run(
        self, *arguments: str, check: bool = True, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line in the stack's directory."""
        done = subprocess.run(
            [PROGRAM, *arguments],
            cwd=self.home,
            env=self.environment | dict(more or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        if check and done.returncode != 0:
            words = " ".join(arguments)
            raise AssertionError(
                f"`drumline {words}` ended with {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def call(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a command to the gateway, as the CLI does, without starting a process."""
        if self._control is None:
            endpoint = f"ipc://{self.run_path / 'control.sock'}"
            self._control = Control(endpoint, timeout=20.0, actor="test")
        return self._control.call(command, arguments)

    def wait_batch(
        self, batch_id: int, deadline: float = 60.0, poll: float = POLL_SECONDS
    ) -> dict[str, Any]:
        """Wait until a batch is finished, retrying while the gateway is down; the batch."""

        def finished_batch() -> dict[str, Any] | None:
            try:
                batch = self.call("batch.show", batch_id=batch_id)
            except NotReachable:
                return None
            return batch if batch["status"] in FINAL else None

        return self.wait_for(finished_batch, deadline, f"the end of batch {batch_id}", poll)

    def counts(self, batch_id: int) -> dict[str, int]:
        """The number of a batch's tasks in each state."""
        counts: dict[str, int] = self.call("batch.show", batch_id=batch_id)["counts"]
        return counts

    def wait_for(
        self,
        condition: Callable[[], T | None],
        deadline: float = 30.0,
        what: str = "the condition",
        poll: float = POLL_SECONDS,
    ) -> T:
        """Call until the result is true, at intervals growing to `poll` seconds; the result."""
        until = time.monotonic() + deadline
        pause = FIRST_POLL_SECONDS
        while not (result := condition()):
            assert time.monotonic() < until, f"timed out after {deadline:g} s waiting for {what}"
            time.sleep(pause)
            pause = min(poll, 1.5 * pause)
        return result

    # --- processes -------------------------------------------------------------------------------

    def processes(self) -> dict[str, list[int]]:
        """The pids of the running processes, by kind, in the order of their names."""
        found: dict[str, list[int]] = defaultdict(list)
        for process in run_dir.live_processes(self.run_path):
            found[process.kind].append(process.pid)
        return dict(found)

    def kill(self, kind: str, by: signal.Signals = signal.SIGKILL, which: int = 0) -> int:
        """Send a signal to one process of a kind; its pid."""
        pids = self.processes()[kind]
        self._before[kind] = set(pids)
        os.kill(pids[which], by)
        return pids[which]

    def wait_restart(self, kind: str, killed: int, deadline: float = 30.0) -> int:
        """Wait for the process that replaces the last one of its kind that was killed; its pid."""

        def replacement() -> int | None:
            now = set(self.processes().get(kind, ())) - self._before[kind]
            return min(now, default=None)

        return self.wait_for(replacement, deadline, f"another {kind} after {killed}")

    def log(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one process, oldest first, without lines that are not JSON."""
        lines = []
        for line in (self.run_path / "log" / f"{name}.log").read_text().splitlines():
            with suppress(ValueError):
                lines.append(json.loads(line))
        return lines

    # --- clean-up --------------------------------------------------------------------------------

    def close(self, show_logs: bool = False) -> None:
        """Kill all processes that were started here and remove the directory."""
        try:
            if self._control is not None:
                self._control.close()
            if show_logs:
                self.show_logs()
        finally:
            # supervisord first, or it starts the others again.
            supervisors = run_dir.live_processes(self.run_path, "supervisord")
            run_dir.signal_processes(supervisors, signal.SIGKILL)
            while remaining := self._remaining_processes():
                processes.kill_all(remaining)
                time.sleep(FIRST_POLL_SECONDS)
            shutil.rmtree(self.home)

    def _remaining_processes(self) -> list[int]:
        """All processes of this run directory, the children of tasks included."""
        mark = str(self.run_path)
        return [
            seen.pid
            for seen in procfs.read_all()
            if seen.pid != os.getpid()
            and procfs.has_in_environment(seen.pid, "DRUMLINE_RUN_DIR", mark)
        ]

    def show_logs(self) -> None:
        """Print the last lines of each process's log."""
        for file in sorted((self.run_path / "log").glob("*.log")):
            lines = file.read_text(errors="replace").splitlines()[-LOG_LINES:]
            print(f"--- {file.name}", *lines, sep="\n", file=sys.stderr)


@contextmanager
def shared_by_tests(stack: S, request: pytest.FixtureRequest) -> Iterator[S]:
    """Start a stack for several tests; if one of them fails, its logs are printed at the end."""
    failed = request.session.testsfailed
    with stack:
        yield stack
        if request.session.testsfailed > failed:
            stack.show_logs()
