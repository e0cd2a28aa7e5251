"""Processes of ours: who is still who, who descends from whom, and ending all of them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections import defaultdict
from collections.abc import Iterable

from drumline.system import procfs

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
    seen = procfs.look(pid)
    return None if seen is None else seen.started


def is_same(pid: int, pid_started: int) -> bool:
    """Is this pid still the process that was meant? A dead one that nobody buried is not."""
    return started(pid) == pid_started


def is_alive(pid: int) -> bool:
    return procfs.look(pid) is not None


def is_suspended(pid: int) -> bool:
    seen = procfs.look(pid)
    return seen is not None and seen.state in procfs.SUSPENDED


def descendants(pid: int) -> list[int]:
    """All living processes below this one."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for seen in procfs.look_around():
        children[seen.parent].append(seen.pid)
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children[todo.pop()]
        found += below
        todo += below
    return found


def marked(mark: str) -> list[int]:
    """All living processes that carry a run's mark."""
    return [
        seen.pid for seen in procfs.look_around() if procfs.has_in_environment(seen.pid, MARK, mark)
    ]


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
    while pids := marked(mark):
        kill_all(pids)
