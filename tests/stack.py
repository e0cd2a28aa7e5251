"""A whole Drumline of real processes, for tests that start, kill and watch them.

    with Stack(database_url, workers=2) as stack:
        batch = stack.call("batch.submit", batch_name="b", type="demo.noop", count=100)
        stack.kill("dispatcher")
        assert stack.wait_batch(batch["batch_id"])["status"] == "success"

It has a directory, a port and processes of its own, and leaving it ends all of them, whatever
happened. If the test failed, the ends of the logs are printed.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from drumline.client.control import Control
from drumline.config import Settings
from drumline.errors import NotReachable
from drumline.node import run_dir
from drumline.system import procfs

T = TypeVar("T")

PROGRAM = Path(sys.executable).parent / "drumline"
COMMAND_SECONDS = 120.0
POLL_SECONDS = 0.02
LOG_LINES = 15
OVER = {"success", "fail", "partial_fail", "cancel", "rollback_success", "rollback_fail"}


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
        # pytest's tmp_path is too long for a unix socket.
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
        # A process ignores a variable that names no setting, and so would run with the default.
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
        """Start everything; return when it is ready to take work."""
        self.run("up", "--detach", *arguments)

    def down(self) -> None:
        """Drain and stop everything."""
        self.run("down")

    def cli(self, *arguments: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def run(
        self, *arguments: str, check: bool = True, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One call of the command line, in the stack's own directory."""
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
        """A command over the control socket: what the CLI does, without its start."""
        if self._control is None:
            endpoint = f"ipc://{self.run_path / 'control.sock'}"
            self._control = Control(endpoint, timeout=20.0, actor="test")
        return self._control.call(command, arguments)

    def wait_batch(
        self, batch_id: int, deadline: float = 60.0, poll: float = POLL_SECONDS
    ) -> dict[str, Any]:
        """The batch once it is over. A gateway that is away meanwhile is waited for."""

        def over() -> dict[str, Any] | None:
            try:
                batch = self.call("batch.show", batch_id=batch_id)
            except NotReachable:
                return None
            return batch if batch["status"] in OVER else None

        return self.wait_for(over, deadline, f"the end of batch {batch_id}", poll)

    def counts(self, batch_id: int) -> dict[str, int]:
        """How many of a batch's tasks are in each state."""
        counts: dict[str, int] = self.call("batch.show", batch_id=batch_id)["counts"]
        return counts

    def wait_for(
        self,
        question: Callable[[], T | None],
        deadline: float = 30.0,
        what: str = "this",
        poll: float = POLL_SECONDS,
    ) -> T:
        """The first answer that is true, before the deadline."""
        until = time.monotonic() + deadline
        while not (answer := question()):
            assert time.monotonic() < until, f"waited {deadline:g} s in vain for {what}"
            time.sleep(poll)
        return answer

    # --- processes -------------------------------------------------------------------------------

    def processes(self) -> dict[str, list[int]]:
        """The pids of the processes that live, by kind, in the order of their names."""
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
        """The pid of the process that has taken the place of the last of its kind to be killed."""

        def successor() -> int | None:
            now = set(self.processes().get(kind, ())) - self._before[kind]
            return min(now, default=None)

        return self.wait_for(successor, deadline, f"another {kind} after {killed}")

    def log(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one process, oldest first; what is not JSON is left out."""
        lines = []
        for line in (self.run_path / "log" / f"{name}.log").read_text().splitlines():
            with suppress(ValueError):
                lines.append(json.loads(line))
        return lines

    # --- the end ---------------------------------------------------------------------------------

    def close(self, show_logs: bool = False) -> None:
        """End everything that was started, by force if it must be, and remove its directory."""
        try:
            if self._control is not None:
                self._control.close()
            if show_logs:
                self.show_logs()
            run_dir.signal_processes(
                run_dir.live_processes(self.run_path), signal.SIGCONT
            )  # a stopped one hears no TERM
            self.run("down", check=False)
        finally:
            while alive := self._everyone():
                for pid in alive:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(POLL_SECONDS)
            shutil.rmtree(self.home)

    def _everyone(self) -> list[int]:
        """Everything that was started for this run directory, tasks' own children included."""
        mark = str(self.run_path)
        return [
            seen.pid
            for seen in procfs.read_all()
            if seen.pid != os.getpid()
            and procfs.has_in_environment(seen.pid, "DRUMLINE_RUN_DIR", mark)
        ]

    def show_logs(self) -> None:
        """The last lines of each process, for whoever reads of a failure."""
        for file in sorted((self.run_path / "log").glob("*.log")):
            lines = file.read_text(errors="replace").splitlines()[-LOG_LINES:]
            print(f"--- {file.name}", *lines, sep="\n", file=sys.stderr)


def free_port() -> int:
    """A port below those that the system gives to outgoing connections."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
