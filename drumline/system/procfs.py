"""Processes as /proc shows them: identity, parent, arguments, memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
DEAD = frozenset("ZX")
SUSPENDED = frozenset("Tt")


class ProcessStat(NamedTuple):
    """One process at one moment."""

    pid: int
    parent: int
    state: str
    started: int
    """In ticks since boot: with the pid, the identity of a process."""
    cpu_ticks: int


def read_stat(pid: int) -> ProcessStat | None:
    """A process, or None if there is none; a zombie counts as none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in DEAD:
        return None
    cpu_ticks = int(fields[11]) + int(fields[12])
    return ProcessStat(pid, int(fields[1]), fields[0], int(fields[19]), cpu_ticks)


def read_all() -> list[ProcessStat]:
    """All processes."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [stat for pid in pids if (stat := read_stat(pid)) is not None]


def parent(pid: int) -> int | None:
    stat = read_stat(pid)
    return None if stat is None else stat.parent


def arguments(pid: int) -> list[str]:
    return [os.fsdecode(argument) for argument in _read_list(pid, "cmdline")]


def has_in_environment(pid: int, name: str, value: str) -> bool:
    """Whether the process was started with this variable; False for processes of other users."""
    return os.fsencode(f"{name}={value}") in _read_list(pid, "environ")


def age(stat: ProcessStat) -> float:
    """Seconds since the process started."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return max(0.0, uptime - stat.started / TICKS)


def memory_mb(pid: int) -> float:
    """Resident memory, with all pages that are shared with other processes."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20
    except (OSError, IndexError):
        return 0.0


def own_memory_mb(pid: int) -> float:
    """Proportional share of memory: a page that n processes share counts one nth for each."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def _read_list(pid: int, file: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []
