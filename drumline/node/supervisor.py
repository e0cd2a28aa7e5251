"""supervisord, which starts and restarts the processes of a node: start it, query it, stop it."""

from __future__ import annotations

import fcntl
import http.client
import math
import os
import shutil
import socket
import subprocess
import sys
import xmlrpc.client
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from drumline import config
from drumline.config import Settings
from drumline.errors import BadConfig, NotReachable

LOCK = "up.lock"
SOCKET = "super.sock"
REPLY_SECONDS = 5.0
STOP_MARGIN = 10.0
GO = b"go"
"""What supervisord reads from stdin before it starts the other processes."""
SHUTDOWN_STATE = 6
"""The XML-RPC fault that it replies with while it stops."""


class SupervisorUnreachable(NotReachable):
    """supervisord cannot be reached: {reason}"""


class SupervisorStopping(SupervisorUnreachable):
    """supervisord is stopping the processes and answers no requests."""


def config_file() -> Path:
    """supervisord.conf: beside the packages in a clone, inside the package in a wheel."""
    package = Path(__file__).parents[1]
    for path in (package.parent / "supervisord.conf", package / "supervisord.conf"):
        if path.is_file():
            return path
    raise BadConfig(reason=f"supervisord.conf is neither beside nor inside {package}")


def find_drumline() -> Path | None:
    """The `drumline` program that starts the processes: the running one, or another that exists."""
    called = Path(sys.argv[0]).absolute()
    if called.name == "drumline" and os.access(called, os.X_OK):
        return called
    beside = Path(sys.executable).parent / "drumline"
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("drumline")
    return Path(found).absolute() if found else None


def acquire_lock(run_path: Path) -> int | None:
    """Lock a run directory; None if another process holds the lock.

    supervisord inherits the lock, so it is held exactly as long as `up` or supervisord runs. A pid
    file could be stale.
    """
    lock = os.open(run_path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def start_supervisord(settings: Settings, lock: int) -> subprocess.Popen[bytes]:
    """Start supervisord. It starts the other processes after `let_start`; if this process ends
    before that, supervisord ends too."""
    with (settings.run_path / "log" / "supervisord.out").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "actors.supervisord", "-c", str(config_file())],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            env={**os.environ, **environment(settings)},
            pass_fds=(lock,),
            # Ctrl-C in the terminal goes to `drumline up`, which then drains all processes.
            start_new_session=True,
        )


def let_start(process: subprocess.Popen[bytes]) -> None:
    """Have supervisord start the other processes."""
    # If it has ended already, StartedNode reports that.
    with suppress(BrokenPipeError), cast(IO[bytes], process.stdin) as stdin:
        stdin.write(GO)


def withdraw(process: subprocess.Popen[bytes]) -> None:
    """Have a supervisord that has not been let start end by itself. A drain may not recognise it:
    for a moment after its start the kernel shows neither its arguments nor its environment."""
    with suppress(BrokenPipeError):
        cast(IO[bytes], process.stdin).close()


def environment(settings: Settings) -> dict[str, str]:
    """The variables that supervisord.conf and the processes need."""
    found = find_drumline()
    if found is None:
        raise BadConfig(reason="the program `drumline` is neither beside Python nor on PATH")
    return config.as_environment(settings) | {
        "DRUMLINE_WORKERS": str(settings.worker_count),
        "DRUMLINE_STOP_SECONDS": str(stop_seconds(settings)),
        "PATH": f"{found.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PROMETHEUS_MULTIPROC_DIR": str(settings.run_path / "metrics"),
        # Output of a handler must be in the log even if the runner is killed right after.
        "PYTHONUNBUFFERED": "1",
    }


def stop_seconds(settings: Settings) -> int:
    """Seconds that a process has to stop before it is killed: longer than a drain takes."""
    return math.ceil(settings.drain_seconds + settings.kill_grace + STOP_MARGIN)


class Supervisor:
    """The supervisord of a run directory."""

    def __init__(self, run_path: Path) -> None:
        self._path = run_path / SOCKET

    def pid(self) -> int:
        return int(self._call("getPID"))

    def programs(self) -> list[dict[str, Any]]:
        """Its processes and their states."""
        found: list[dict[str, Any]] = self._call("getAllProcessInfo")
        return found

    def shut_down(self) -> None:
        """Have it stop the processes in order, and then itself."""
        self._call("shutdown")

    def _call(self, method: str) -> Any:
        try:
            with xmlrpc.client.ServerProxy(
                "http://localhost", transport=_Transport(self._path)
            ) as proxy:
                return getattr(proxy, f"supervisor.{method}")()
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == SHUTDOWN_STATE:
                raise SupervisorStopping from None
            raise SupervisorUnreachable(reason=fault.faultString) from None
        except (OSError, http.client.HTTPException, xmlrpc.client.Error) as error:
            raise SupervisorUnreachable(reason=str(error) or type(error).__name__) from None


class _Transport(xmlrpc.client.Transport):
    """Over a unix socket, with a timeout: a suspended supervisord accepts but never replies."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost", timeout=REPLY_SECONDS)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(REPLY_SECONDS)
        try:
            connection.sock.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        return connection
