"""Identify processes safely, find their descendants, and kill all processes of a run."""

from __future__ import annotations

import ctypes
import os
import signal
from collections import defaultdict
from collections.abc import Iterable

from drumline.system import procfs

PR_SET_CHILD_SUBREAPER = 36
MARK = "DRUMLINE_RUN_OF"
"""In the environment of a runner, and inherited by all that its tasks start: the path of its black
box, which no other run on this host has. A task may move its children to other sessions and
process groups; the mark stays with them."""


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, so that it can find them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def start_ticks(pid: int) -> int | None:
    """When a process started, in the kernel's ticks: with the pid, the identity of a process."""
    stat = procfs.read_stat(pid)
    return None if stat is None else stat.started


def is_same(pid: int, pid_started: int) -> bool:
    """Whether this pid is still the process that started then. A zombie is not."""
    return start_ticks(pid) == pid_started


def is_alive(pid: int) -> bool:
    return procfs.read_stat(pid) is not None


def is_suspended(pid: int) -> bool:
    stat = procfs.read_stat(pid)
    return stat is not None and stat.state in procfs.SUSPENDED


def descendants(pid: int) -> list[int]:
    """All living children of a process, their children, and so on."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for stat in procfs.read_all():
        children[stat.parent].append(stat.pid)
    found: list[int] = []
    remaining = [pid]
    while remaining:
        below = children[remaining.pop()]
        found += below
        remaining += below
    return found


def marked(mark: str) -> list[int]:
    """All living processes that carry the mark of a run."""
    return [
        stat.pid for stat in procfs.read_all() if procfs.has_in_environment(stat.pid, MARK, mark)
    ]


def kill_if_same(pid: int, pid_started: int) -> bool:
    """Kill a process; False if it has ended, even if its pid was given to another one."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The handle refers to one process: if the identity is right now, it is at the signal.
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
    """Send a signal to one thread of a process; the main thread has the number of the process."""
    ctypes.CDLL(None).tgkill(pid, thread, number)


def kill_run(mark: str) -> None:
    """Kill all processes that carry the mark of a run, until no new one has appeared."""
    while pids := marked(mark):
        kill_all(pids)
