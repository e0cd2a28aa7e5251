"""The run directory of a node, and the processes that use it."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE
from typing import NamedTuple

import msgspec

from drumline.config import Settings
from drumline.errors import BadConfig
from drumline.node.supervisor import LOCK, Supervisor, SupervisorUnreachable
from drumline.system import procfs

TOKEN = "api_token"  # noqa: S105  # the name of a file
OWN_FILES = frozenset({LOCK, TOKEN, "log", "metrics", "running", "drumline.db"})
KINDS = ("supervisord", "dispatcher", "reaper", "worker", "runner", "scanner", "ticker", "gateway")
"""In the order in which they start; they stop in the reverse order."""
ALIVE = frozenset({"running", "starting", "stopping", "suspended", "orphaned"})


class Process(msgspec.Struct, frozen=True):
    """One process of a node. A worker has two: `worker` (the keeper) and `runner`."""

    kind: str
    name: str
    pid: int | None
    state: str
    uptime: float | None = None
    memory_mb: float | None = None
    own_memory_mb: float | None = None

    @property
    def is_alive(self) -> bool:
        return self.state in ALIVE


class LiveProcess(NamedTuple):
    """A process found in /proc."""

    pid: int
    kind: str
    name: str


# --- the run directory -----------------------------------------------------------------------


def make_run_dir(settings: Settings) -> Path:
    """Create the run directory. Only its owner may use it: its sockets have no authentication."""
    path = settings.run_path
    settings.endpoint("dispatcher")  # an error if the path is too long for a socket
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if problem := permission_problem(path):
            if not can_restrict(path):
                raise BadConfig(reason=problem)
            path.chmod(0o700)
        for name in ("log", "metrics"):
            (path / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise BadConfig(reason=f"run_dir {path}: {error.strerror}") from None
    return path


def permission_problem(path: Path) -> str | None:
    """Why the run directory is not private to this user."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        return f"run_dir {path} belongs to another user"
    mode = S_IMODE(found.st_mode)
    if mode & 0o077:
        return f"run_dir {path} is open to others (mode {mode:o}): chmod 700 it, or name another"
    return None


def can_restrict(path: Path) -> bool:
    """Whether its mode may be changed: this user owns it, and all files in it are Drumline's."""
    names = (entry.name for entry in path.iterdir())
    return path.stat().st_uid == os.geteuid() and all(
        name in OWN_FILES or name.startswith("drumline.db") for name in names
    )


def read_token(path: Path) -> str | None:
    """The API token of a run directory; None if there is none."""
    try:
        return (path / TOKEN).read_text().strip() or None
    except FileNotFoundError:
        return None


def ensure_api_token(path: Path) -> str:
    """The API token; the first start makes it. There is no default token."""
    if token := read_token(path):
        return token
    token = secrets.token_urlsafe(32)
    new = path / f"{TOKEN}.new"
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    new.rename(path / TOKEN)
    return token


def remove_leftovers(path: Path) -> None:
    """Remove the metrics and sockets of processes that have ended."""
    for pattern in ("metrics/*.db", "*.sock"):
        for file in path.glob(pattern):
            file.unlink(missing_ok=True)


# --- the processes ---------------------------------------------------------------------------


def processes(path: Path) -> list[Process]:
    """Every process of a run directory, as supervisord reports it or as /proc shows it."""
    supervisor = Supervisor(path)
    found = []
    try:
        programs = supervisor.programs()
        found.append(_describe("supervisord", "supervisord", supervisor.pid(), "running"))
    except SupervisorUnreachable:
        programs = []
    for info in programs:
        pid, state = info["pid"] or None, info["statename"].lower()
        found.append(_describe(info["group"], info["name"], pid, state))
    known = {process.pid for process in found}
    for live in live_processes(path):
        if live.pid not in known:
            has_keeper = live.kind == "runner" and procfs.parent(live.pid) in known
            state = "running" if has_keeper else "orphaned"
            found.append(_describe(live.kind, live.name, live.pid, state))
    return sorted(found, key=lambda process: _order(process.kind, process.name))


def live_processes(path: Path, *kinds: str) -> list[LiveProcess]:
    """The processes of a run directory as /proc shows them: all, or those of some kinds."""
    found = []
    stats = procfs.read_all()
    for stat in stats:
        words = procfs.arguments(stat.pid)
        if "actors.supervisord" in words:
            kind = name = "supervisord"
        elif "actor" in words[:-1]:
            name = words[words.index("actor") + 1]
            kind = name.partition("-")[0]
        else:
            continue
        if kind in KINDS and procfs.has_in_environment(stat.pid, "DRUMLINE_RUN_DIR", str(path)):
            found.append(LiveProcess(stat.pid, kind, name))
    keepers = {one.pid: one.name for one in found if one.kind == "worker"}
    for stat in stats:
        if stat.parent in keepers and "drumline.runner" in procfs.arguments(stat.pid):
            name = keepers[stat.parent].replace("worker", "runner")
            found.append(LiveProcess(stat.pid, "runner", name))
    found.sort(key=lambda process: _order(process.kind, process.name))
    return [one for one in found if not kinds or one.kind in kinds]


def _order(kind: str, name: str) -> tuple[int, int, str]:
    return KINDS.index(kind), len(name), name


def _describe(kind: str, name: str, pid: int | None, state: str) -> Process:
    stat = procfs.read_stat(pid) if pid else None
    if pid is None or stat is None:
        return Process(kind, name, None, state)
    return Process(
        kind,
        name,
        pid,
        "suspended" if stat.state in procfs.SUSPENDED else state,
        round(procfs.age(stat), 1),
        round(procfs.memory_mb(pid), 1),
        round(procfs.own_memory_mb(pid), 1),
    )


def signal_processes(processes: Iterable[LiveProcess], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
