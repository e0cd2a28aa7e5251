"""The start of a node: everything is checked and made before the first process is started, and
what was started is stopped again if it does not become ready."""

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
from drumline.node.supervisor import Supervisor, SupervisorGone
from drumline.web import listen

Say = Callable[[str], object]

READY_SECONDS = 60.0
POLL_SECONDS = 0.03
LOG_LINES = 8
FAILED = frozenset({"BACKOFF", "FATAL", "EXITED", "UNKNOWN"})


class DidNotStart(DrumlineError):
    """Drumline did not start: {reason}"""

    @property
    def log(self) -> str:
        return str(self.details.get("log", ""))


class SupervisorEnded(DrumlineError):
    """supervisord ended by itself ({code}). Its processes drain; start again with `drumline up`."""


class HandlersBroken(WrongUse):
    """Handlers cannot be imported: {reason}"""


def prepare(settings: Settings, say: Say) -> str:
    """Check and make what the processes need, and return the API token."""
    looking = import_check.in_background(settings.imports) if settings.imports else None
    for hook in settings.webhooks:
        alarms.webhook_secret(hook, os.environ)
    # Better now, to the person who can change it, than in the log of a process.
    listen.bound(settings).close()
    if looking is not None:
        problems = import_check.found(looking).problems
        if problems:
            raise HandlersBroken(reason="; ".join(import_check.last_line(p) for p in problems))
    say("Bringing the database up to date")
    token = run_dir.api_token(settings.run_path)
    migrate(settings, token)
    return token


def migrate(settings: Settings, token: str) -> None:
    """Bring the schema up to date, and have this node's token known in it."""
    from drumline.store import schema
    from drumline.store.access import opened
    from drumline.store.admin import tokens

    name = f"up@{settings.node_name}"
    with opened(settings.database) as database:
        schema.upgrade(database)
        database.write(lambda tx: tokens.ensure(tx, name, tokens.hash_of(token)))


def _end_left_overs(settings: Settings, say: Say) -> None:
    """Processes whose supervisord was killed drain by themselves; the stubborn are killed."""
    path = settings.run_path
    deadline = time.monotonic() + supervisor.stop_seconds(settings)
    run_dir.end(run_dir.living(path), signal.SIGTERM)
    while alive := run_dir.living(path):
        say(f"Waiting for {len(alive)} processes of an earlier start to drain")
        if time.monotonic() > deadline:
            run_dir.end(alive, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def start(settings: Settings, lock: int, say: Say) -> Launch:
    """Start a node; return when it can do work, or stop it again and say why it cannot. The caller
    holds the lock."""
    _end_left_overs(settings, say)
    run_dir.clear_remains(settings.run_path)
    process = supervisor.start(settings, lock)
    try:
        launch = Launch(settings, process, prepare(settings, say))
        supervisor.let_go(process)
        launch.wait_until_ready(say)
    except BaseException:
        shutdown.drain(settings, say)
        raise
    return launch


class Launch:
    """A node that was started."""

    def __init__(self, settings: Settings, process: subprocess.Popen[bytes], token: str) -> None:
        self._settings = settings
        self._process = process
        self._supervisor = Supervisor(settings.run_path)
        self.token = token

    def wait_until_ready(self, say: Say) -> None:
        control = Control(self._settings.endpoint("control"), timeout=5.0)
        deadline = time.monotonic() + READY_SECONDS
        try:
            while reasons := self._missing(control):
                if time.monotonic() > deadline:
                    raise DidNotStart(
                        reason=f"after {READY_SECONDS:g} s {', '.join(reasons)}; "
                        f"the logs are in {self._settings.run_path / 'log'}"
                    )
                say(f"Starting: {', '.join(reasons)}")
                time.sleep(POLL_SECONDS)
        finally:
            control.close()

    def has_ended(self, seconds: float) -> bool:
        """Wait so long for its end. An end that nobody asked for is an error."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if code != 0:
            raise SupervisorEnded(code=code)
        return True

    def _missing(self, control: Control) -> list[str]:
        if self._process.poll() is not None:
            raise DidNotStart(reason="supervisord ended", log=self._tail("supervisord.out"))
        try:
            programs = self._supervisor.programs()
        except SupervisorGone:
            return ["supervisord is not there yet"]
        for program in programs:
            if program["statename"] in FAILED:
                name = program["name"]
                raise DidNotStart(reason=f"{name} failed", log=self._tail(f"{name}.log"))
        if not (self._settings.run_path / "control.sock").exists():
            return ["the gateway is not there yet"]
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
