"""Start a node: check and prepare everything before the first process starts, and stop the
processes again if the node does not become ready."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

from drumline.client.control import Control
from drumline.config import Settings
from drumline.domain import alarms
from drumline.errors import DrumlineError, NotReachable, WrongUse
from drumline.handlers import import_check
from drumline.node import run_dir, shutdown, supervisor
from drumline.node.supervisor import Supervisor, SupervisorUnreachable
from drumline.web import listener

Report = Callable[[str], object]

READY_SECONDS = 60.0
POLL_SECONDS = 0.03
LOG_LINES = 8
FAILED = frozenset({"BACKOFF", "FATAL", "EXITED", "UNKNOWN"})


class StartFailed(DrumlineError):
    """Drumline did not start: {reason}"""

    @property
    def log(self) -> str:
        return str(self.details.get("log", ""))


class SupervisorEnded(DrumlineError):
    """supervisord ended ({code}) and its processes drain. Run `drumline up` to start again."""


class HandlersBroken(WrongUse):
    """Handlers cannot be imported: {reason}"""


def prepare(settings: Settings, report: Report) -> str:
    """Check the settings, import the handlers, migrate the database; returns the API token."""
    importing = import_check.start_import_check(settings.imports) if settings.imports else None
    for hook in settings.webhooks:
        alarms.webhook_secret(hook, os.environ)
    # A port that is taken is reported here, not only in the log of the gateway.
    listener.open_listener(settings).close()
    if importing is not None:
        problems = import_check.read_import_report(importing).problems
        if problems:
            raise HandlersBroken(reason="; ".join(import_check.last_line(p) for p in problems))
    report("Migrating the database")
    token = run_dir.ensure_api_token(settings.run_path)
    migrate(settings, token)
    return token


def migrate(settings: Settings, token: str) -> None:
    """Upgrade the schema and register this node's API token."""
    from drumline.store import schema
    from drumline.store.access import opened
    from drumline.store.admin import tokens

    name = f"up@{settings.node_name}"
    with opened(settings.database) as database:
        schema.upgrade(database)
        database.write(lambda tx: tokens.ensure(tx, name, tokens.hash_of(token)))


def _stop_orphans(settings: Settings, report: Report) -> None:
    """Stop processes whose supervisord was killed; those that do not drain in time are killed."""
    path = settings.run_path
    deadline = time.monotonic() + supervisor.stop_seconds(settings)
    run_dir.signal_processes(run_dir.live_processes(path), signal.SIGTERM)
    while live := run_dir.live_processes(path):
        report(f"Waiting for {len(live)} processes of an earlier start to drain")
        if time.monotonic() > deadline:
            run_dir.signal_processes(live, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def start(settings: Settings, lock: int, report: Report) -> StartedNode:
    """Start a node and return when it is ready; if it does not become ready, stop it and raise the
    reason. The caller holds the lock of the run directory."""
    _stop_orphans(settings, report)
    run_dir.remove_leftovers(settings.run_path)
    process = supervisor.start_supervisord(settings, lock)
    try:
        node = StartedNode(settings, process, prepare(settings, report))
        supervisor.let_start(process)
        node.wait_until_ready(report)
    except BaseException:
        supervisor.withdraw(process)
        shutdown.drain(settings, report)
        raise
    return node


class StartedNode:
    """A node whose supervisord was started by this process."""

    def __init__(self, settings: Settings, process: subprocess.Popen[bytes], token: str) -> None:
        self._settings = settings
        self._process = process
        self._supervisor = Supervisor(settings.run_path)
        self.token = token

    def wait_until_ready(self, report: Report) -> None:
        control = Control(self._settings.endpoint("control"), timeout=5.0)
        deadline = time.monotonic() + READY_SECONDS
        try:
            while reasons := self._missing(control):
                if time.monotonic() > deadline:
                    raise StartFailed(
                        reason=f"after {READY_SECONDS:g} s {', '.join(reasons)}; "
                        f"the logs are in {self._settings.run_path / 'log'}"
                    )
                report(f"Starting: {', '.join(reasons)}")
                time.sleep(POLL_SECONDS)
        finally:
            control.close()

    def has_ended(self, seconds: float) -> bool:
        """Wait this long for supervisord to end. An exit code other than 0 is an error."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if code != 0:
            raise SupervisorEnded(code=code)
        return True

    def _missing(self, control: Control) -> list[str]:
        if self._process.poll() is not None:
            raise StartFailed(reason="supervisord ended", log=self._tail("supervisord.out"))
        try:
            programs = self._supervisor.programs()
        except SupervisorUnreachable:
            return ["supervisord does not answer yet"]
        for program in programs:
            if program["statename"] in FAILED:
                name = program["name"]
                raise StartFailed(reason=f"{name} failed", log=self._tail(f"{name}.log"))
        if not (self._settings.run_path / "control.sock").exists():
            return ["the gateway has not started yet"]
        try:
            return list(control.call("node.ready", {})["missing"])
        except NotReachable:
            return ["the gateway does not answer yet"]

    def _tail(self, name: str) -> str:
        file = self._settings.run_path / "log" / name
        try:
            lines = file.read_text(errors="replace").splitlines()[-LOG_LINES:]
        except OSError:
            lines = []
        return "\n".join([f"The last lines of {file}:", *lines])
