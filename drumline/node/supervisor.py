"""supervisord, who starts a node's processes again when they die: its start, its word, its end."""

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
ANSWER_SECONDS = 5.0
STOP_MARGIN = 10.0
GO = b"go"
"""The word for which it waits before it starts anything."""
SHUTDOWN_STATE = 6
"""The fault with which it answers whatever it is asked while it stops."""


class SupervisorGone(NotReachable):
    """supervisord cannot be reached: {reason}"""


class SupervisorStopping(SupervisorGone):
    """supervisord is stopping everything and answers no questions."""


def config_file() -> Path:
    """Where its configuration is: beside the packages in a clone, inside the package in a wheel."""
    package = Path(__file__).parents[1]
    for path in (package.parent / "supervisord.conf", package / "supervisord.conf"):
        if path.is_file():
            return path
    raise BadConfig(reason=f"supervisord.conf is neither beside nor inside {package}")


def program() -> Path | None:
    """The `drumline` that the processes are started with: the one that runs now, if it is one."""
    called = Path(sys.argv[0]).absolute()
    if called.name == "drumline" and os.access(called, os.X_OK):
        return called
    beside = Path(sys.executable).parent / "drumline"
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("drumline")
    return Path(found).absolute() if found else None


def take_lock(run_path: Path) -> int | None:
    """The lock of a run directory, or None if another has it.

    supervisord inherits it, so it is held exactly as long as one of them lives: no pid file has
    to be believed.
    """
    lock = os.open(run_path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def start(settings: Settings, lock: int) -> subprocess.Popen[bytes]:
    """Start supervisord. With the word GO it starts everything else; without, it ends with us."""
    with (settings.run_path / "log" / "supervisord.out").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "actors.supervisord", "-c", str(config_file())],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            env={**os.environ, **environment(settings)},
            pass_fds=(lock,),
            # Ctrl-C in the terminal is for whoever started it, who then has all of it drain.
            start_new_session=True,
        )


def let_go(process: subprocess.Popen[bytes]) -> None:
    """Have it start everything else."""
    # If it has ended already, whoever waits for it will see.
    with suppress(BrokenPipeError), cast(IO[bytes], process.stdin) as stdin:
        stdin.write(GO)


def environment(settings: Settings) -> dict[str, str]:
    """What the configuration file and the processes need to see."""
    found = program()
    if found is None:
        raise BadConfig(reason="the program `drumline` is neither beside Python nor on PATH")
    return config.as_environment(settings) | {
        "DRUMLINE_WORKERS": str(settings.worker_count),
        "DRUMLINE_STOP_SECONDS": str(stop_seconds(settings)),
        "PATH": f"{found.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PROMETHEUS_MULTIPROC_DIR": str(settings.run_path / "metrics"),
        # What a handler prints is to be in the log even if it is killed the moment after.
        "PYTHONUNBUFFERED": "1",
    }


def stop_seconds(settings: Settings) -> int:
    """How long a process may take to stop before it is killed: longer than it takes to drain."""
    return math.ceil(settings.drain_seconds + settings.kill_grace + STOP_MARGIN)


class Supervisor:
    """The supervisord of a run directory."""

    def __init__(self, run_path: Path) -> None:
        self._path = run_path / SOCKET

    def pid(self) -> int:
        return int(self._call("getPID"))

    def programs(self) -> list[dict[str, Any]]:
        """Every process it looks after, as it sees it."""
        found: list[dict[str, Any]] = self._call("getAllProcessInfo")
        return found

    def shut_down(self) -> None:
        """Have it stop everything in order, and then itself."""
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
            raise SupervisorGone(reason=fault.faultString) from None
        except (OSError, http.client.HTTPException, xmlrpc.client.Error) as error:
            raise SupervisorGone(reason=str(error) or type(error).__name__) from None


class _Transport(xmlrpc.client.Transport):
    """Over a unix socket, with a limit in time: a stopped supervisord accepts and never answers."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost", timeout=ANSWER_SECONDS)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(ANSWER_SECONDS)
        try:
            connection.sock.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        return connection
