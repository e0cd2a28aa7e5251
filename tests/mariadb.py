"""A private MariaDB server with its own directory, socket and port, removed when closed.

Most tests share the one that `tests.run` starts; tests that stop, kill or restart a server start
one of their own.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import NullPool, create_engine, make_url

from tests.ports import free_port

URL_VARIABLE = "DRUMLINE_TEST_MARIADB_URL"
"""Names the shared server to the tests."""
START_SECONDS = 60.0
STOP_SECONDS = 30.0


class MariaDBError(Exception):
    """The private server could not be made or started."""


class MariaDB:
    """One server. Its data and port outlive stop() and kill(), until close()."""

    def __init__(self) -> None:
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="drumline-mariadb-"))
        self._data = self._directory / "data"
        self._socket = self._directory / "socket"
        self._log = self._directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when the server takes connections. It dies with the thread that calls this."""
        if self._process is not None:
            raise MariaDBError("already started")
        if not self._data.exists():
            self._initialise()
        command = [
            # However this process ends, even by SIGKILL, the server ends with it.
            *("setpriv", "--pdeathsig", "KILL"),
            *(_program("mariadbd", "mysqld"), "--no-defaults", *_as_root()),
            f"--datadir={self._data}",
            f"--socket={self._socket}",
            # In a shared one, a starting server removes the others' temporary tables.
            f"--tmpdir={self._directory}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--innodb-flush-log-at-trx-commit=1",
            # Anybody on this machine can connect: let them reach no files by it.
            f"--secure-file-priv={self._data}",
        ]
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C is for the tests, which still need the server.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )
        self._wait_until_ready(self._process)

    def stop(self) -> None:
        """Shut down in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End as by a power cut, except that the operating system lives on."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove its data."""
        self.kill()
        shutil.rmtree(self._directory)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def url(self, database: str = "") -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """The new database's URL."""
        _execute(self.url(), f"CREATE DATABASE `{name}`")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        _execute(self.url(), f"DROP DATABASE `{name}`")

    def _initialise(self) -> None:
        command = [
            _program("mariadb-install-db", "mysql_install_db"),
            *("--no-defaults", *_as_root()),
            f"--datadir={self._data}",
            f"--tmpdir={self._directory}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            # Without this it changes owners in the machine's plugin directory.
            "--rpm",
        ]
        with (
            self._log.open("ab") as log,
            subprocess.Popen(command, stdout=log, stderr=log, process_group=0) as installer,
        ):
            try:
                status = installer.wait(START_SECONDS)
            except BaseException:
                os.killpg(installer.pid, signal.SIGKILL)  # the script and the server it runs
                raise
        if status != 0:
            raise self._error("mariadb-install-db failed")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            # By the socket, which is certainly ours: the server makes it once it has the port.
            with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
                probe.settimeout(START_SECONDS)
                probe.connect(str(self._socket))
                if probe.recv(1):  # its greeting
                    return
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
                break
        self.kill()
        raise self._error("the server did not start")

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(by)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise self._error("the server did not stop") from None

    def _error(self, what: str) -> MariaDBError:
        return MariaDBError(f"{what}; the end of its log:\n{self._log.read_text()[-3000:]}")


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """The URL of a new database on this server, dropped afterwards."""
    name = f"test_{uuid.uuid4().hex}"
    _execute(server_url, f"CREATE DATABASE `{name}`")
    try:
        yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        _execute(server_url, f"DROP DATABASE `{name}`")


def _execute(server_url: str, statement: str) -> None:
    engine = create_engine(
        server_url,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        # A transaction left open blocks DROP DATABASE: for a day, by default.
        connect_args={"init_command": "SET lock_wait_timeout = 10"},
    )
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)


def _program(*names: str) -> str:
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin"
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    raise MariaDBError(f"{names[0]} not found: install mariadb-server")


def _as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []
