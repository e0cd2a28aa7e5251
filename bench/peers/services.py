"""Private servers for the peers: Redis and PostgreSQL, each with its own directory and port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from tests.ports import free_port

START_SECONDS = 60.0
POSTGRES_FOLDERS = "/usr/lib/postgresql"
"""Debian keeps the programs of the server here, outside of PATH."""


class ServiceError(Exception):
    """A server could not be started."""


@contextmanager
def redis() -> Iterator[str]:
    """The URL of a Redis that writes nothing to disk: the quickest that the peers can have."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        command = [
            *("redis-server", "--port", str(port), "--bind", "127.0.0.1"),
            *("--dir", folder, "--save", "", "--appendonly", "no"),
        ]
        with _server(command, Path(folder) / "log", port, _Identity()):
            yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL with its default settings, which flush at each commit."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-postgres-") as folder:
        identity = _unprivileged(Path(folder))
        data, log = Path(folder) / "data", Path(folder) / "log"
        subprocess.run(
            [postgres_program("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8"],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **identity,
        )
        command = [
            *(postgres_program("postgres"), "-D", str(data), "-p", str(port)),
            *("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="),
        ]
        with _server(command, log, port, identity):
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


def postgres_program(name: str) -> str:
    """The path of a program of PostgreSQL; raises ServiceError if it is not installed."""
    folders = sorted(Path(POSTGRES_FOLDERS).glob("*/bin"), reverse=True)
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, folders)]))
    if found is None:
        raise ServiceError(f"{name} is not installed")
    return found


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: Sequence[int]


def _unprivileged(folder: Path) -> _Identity:
    """PostgreSQL refuses to run as root: then another user gets the folder and runs it."""
    if os.geteuid() != 0:
        return _Identity()
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        user = pwd.getpwnam("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return _Identity(user=user.pw_uid, group=user.pw_gid, extra_groups=[])


@contextmanager
def _server(command: list[str], log: Path, port: int, identity: _Identity) -> Iterator[None]:
    # If this process ends by SIGKILL, the server ends with it.
    tied = ["setpriv", "--pdeathsig", "KILL", *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            tied, cwd=log.parent, stdout=output, stderr=output, start_new_session=True, **identity
        )
    try:
        _wait_for_port(process, port, log)
        yield
    finally:
        process.send_signal(signal.SIGINT)  # a quick shutdown of both servers
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise ServiceError(f"{process.args!r} did not start: {log.read_text(errors='replace')[-2000:]}")
