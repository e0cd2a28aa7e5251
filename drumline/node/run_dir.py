"""A node: the run directory and the processes that live by it."""

from __future__ import annotations

import os
import secrets
import signal
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from drumline.config import Settings
from drumline.errors import BadConfig
from drumline.node.supervisor import LOCK, Supervisor, SupervisorGone
from drumline.system import procfs

TOKEN = "api_token"  # noqa: S105  # the name of a file
OURS = frozenset({LOCK, TOKEN, "log", "metrics", "running", "drumline.db"})
KINDS = ("supervisord", "dispatcher", "reaper", "worker", "runner", "scanner", "ticker", "gateway")
"""In the order in which they start; they stop the other way round."""
ALIVE = frozenset({"running", "starting", "stopping", "suspended", "orphaned"})


class Process(msgspec.Struct, frozen=True):
    """One process of a node. A worker's two halves are `worker` (the keeper) and `runner`."""

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
    """A process that the kernel shows."""

    pid: int
    kind: str
    name: str


# --- the run directory -----------------------------------------------------------------------


def make_run_dir(settings: Settings) -> Path:
    """The run directory, for its owner alone: its sockets and its token ask nobody who they are."""
    path = settings.run_path
    settings.endpoint("dispatcher")  # refuses a path that is too long for a socket
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if problem := open_to_others(path):
            if not can_be_closed(path):
                raise BadConfig(reason=problem)
            path.chmod(0o700)
        for name in ("log", "metrics"):
            (path / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise BadConfig(reason=f"run_dir {path}: {error.strerror}") from None
    return path


def open_to_others(path: Path) -> str | None:
    """What is wrong with the rights of a run directory."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        return f"run_dir {path} belongs to somebody else"
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        return f"run_dir {path} is open to others (mode {mode:o}): chmod 700 it, or name another"
    return None


def can_be_closed(path: Path) -> bool:
    """May its rights be changed? If it is ours and nothing is in it that is not Drumline's."""
    names = (entry.name for entry in path.iterdir())
    return path.stat().st_uid == os.geteuid() and all(
        name in OURS or name.startswith("drumline.db") for name in names
    )


def read_token(path: Path) -> str | None:
    """The API token of a run directory, if it has one."""
    try:
        return (path / TOKEN).read_text().strip() or None
    except FileNotFoundError:
        return None


def api_token(path: Path) -> str:
    """The API token, made at the first start. There is no default one."""
    if token := read_token(path):
        return token
    token = secrets.token_urlsafe(32)
    new = path / f"{TOKEN}.new"
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    new.rename(path / TOKEN)
    return token


def clear_remains(path: Path) -> None:
    """Remove what processes that no longer live have left: metrics of their pids, sockets."""
    for pattern in ("metrics/*.db", "*.sock"):
        for file in path.glob(pattern):
            file.unlink(missing_ok=True)


# --- the processes ---------------------------------------------------------------------------


def processes(path: Path) -> list[Process]:
    """Every process of a run directory: what supervisord says, and what the kernel shows."""
    supervisor = Supervisor(path)
    alive = {process.pid: process for process in living(path)}
    found = []
    try:
        programs = supervisor.programs()
        found.append(_described("supervisord", "supervisord", supervisor.pid(), "running"))
    except SupervisorGone:
        programs = []
    for info in programs:
        pid, state = info["pid"] or None, info["statename"].lower()
        found.append(_described(info["group"], info["name"], pid, state))
    known = {process.pid for process in found}
    for one in alive.values():
        if one.pid not in known:
            is_ours = one.kind == "runner" and procfs.parent(one.pid) in known
            found.append(_described(*one[1:], one.pid, "running" if is_ours else "orphaned"))
    return sorted(found, key=lambda process: _order(process.kind, process.name))


def living(path: Path, *kinds: str) -> list[LiveProcess]:
    """The processes of a run directory that the kernel shows, or some kinds of them."""
    found = []
    around = procfs.look_around()
    for one in around:
        words = procfs.arguments(one.pid)
        if "actors.supervisord" in words:
            kind = name = "supervisord"
        elif "actor" in words[:-1]:
            name = words[words.index("actor") + 1]
            kind = name.partition("-")[0]
        else:
            continue
        if kind in KINDS and procfs.has_in_environment(one.pid, "DRUMLINE_RUN_DIR", str(path)):
            found.append(LiveProcess(one.pid, kind, name))
    keepers = {one.pid: one.name for one in found if one.kind == "worker"}
    for one in around:
        if one.parent in keepers and "drumline.runner" in procfs.arguments(one.pid):
            name = keepers[one.parent].replace("worker", "runner")
            found.append(LiveProcess(one.pid, "runner", name))
    found.sort(key=lambda process: _order(process.kind, process.name))
    return [one for one in found if not kinds or one.kind in kinds]


def _order(kind: str, name: str) -> tuple[int, int, str]:
    return KINDS.index(kind), len(name), name


def _described(kind: str, name: str, pid: int | None, state: str) -> Process:
    one = procfs.look(pid) if pid else None
    if pid is None or one is None:
        return Process(kind, name, None, state)
    return Process(
        kind,
        name,
        pid,
        "suspended" if one.state in procfs.SUSPENDED else state,
        round(procfs.age(one), 1),
        round(procfs.memory_mb(pid), 1),
        round(procfs.own_memory_mb(pid), 1),
    )


def end(processes: Iterable[LiveProcess], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
