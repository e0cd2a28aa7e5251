"""Processes as the kernel sees them: who is who, who descends from whom, and ending all of them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
MARK = "DRUMLINE_RUN_OF"
"""In the environment of a runner, inherited by all that its tasks start: the path of its black
box, which no other run on this host has. A task may move its children to other sessions and
groups; this mark stays with them."""


def become_subreaper() -> None:
    """Orphans of this process's descendants become its own children, and can be found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def started(pid: int) -> int | None:
    """When a process started, in the kernel's ticks: with the pid, the identity of a process."""
    stat = _stat(pid)
    return None if stat is None else int(stat[19])


def state(pid: int) -> str | None:
    """The kernel's letter for what a process does: T is stopped, Z is dead and not yet buried."""
    stat = _stat(pid)
    return None if stat is None else stat[0]


def is_same(pid: int, pid_started: int) -> bool:
    """Is this pid still the process that was meant? A dead one that nobody buried is not."""
    stat = _stat(pid)
    return stat is not None and stat[0] != "Z" and int(stat[19]) == pid_started


def descendants(pid: int) -> list[int]:
    """All processes below this one."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for other in _pids():
        stat = _stat(other)
        if stat is not None:
            children[int(stat[1])].append(other)
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children[todo.pop()]
        found += below
        todo += below
    return found


def marked(mark: str) -> list[int]:
    """All processes that carry a run's mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for pid in _pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(pid)
    return found


def kill_if_same(pid: int, pid_started: int) -> bool:
    """Kill the process that was meant. False if it is gone, whoever has its number now."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The handle holds on to one process: who is the right one now stays it until the signal.
        if not is_same(pid, pid_started):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def signal_thread(pid: int, thread: int, number: int) -> None:
    """Send a signal to one thread of a process; the main thread has the process's number."""
    ctypes.CDLL(None).tgkill(pid, thread, number)


def end_run(mark: str) -> None:
    """Kill whatever carries a run's mark, again and again until nothing new has appeared."""
    while pids := [p for p in marked(mark) if state(p) not in (None, "Z")]:
        kill_all(pids)


def memory_mb(pid: int) -> float:
    """What a process holds in memory."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()
