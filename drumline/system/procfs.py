"""Processes as the kernel shows them in /proc: who they are, who started them, what they hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
GONE = frozenset("ZX")
SUSPENDED = frozenset("Tt")


class ProcessStat(NamedTuple):
    """One process at one moment."""

    pid: int
    parent: int
    state: str
    started: int
    """In ticks since boot: with the pid, the identity of a process."""
    cpu_ticks: int


def look(pid: int) -> ProcessStat | None:
    """A process, or None if there is none; one that is dead and not yet buried is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in GONE:
        return None
    cpu_ticks = int(fields[11]) + int(fields[12])
    return ProcessStat(pid, int(fields[1]), fields[0], int(fields[19]), cpu_ticks)


def look_around() -> list[ProcessStat]:
    """All processes."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [seen for pid in pids if (seen := look(pid)) is not None]


def parent(pid: int) -> int | None:
    one = look(pid)
    return None if one is None else one.parent


def arguments(pid: int) -> list[str]:
    return [os.fsdecode(part) for part in _parts(pid, "cmdline")]


def has_in_environment(pid: int, name: str, value: str) -> bool:
    """As it was when the process started; False for processes of other users."""
    return os.fsencode(f"{name}={value}") in _parts(pid, "environ")


def age(seen: ProcessStat) -> float:
    """For how many seconds a process has lived."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return max(0.0, uptime - seen.started / TICKS)


def memory_mb(pid: int) -> float:
    """What a process holds in memory, all that it shares included."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20
    except (OSError, IndexError):
        return 0.0


def own_memory_mb(pid: int) -> float:
    """Its proportional share: pages that n processes share count one nth for each."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def _parts(pid: int, file: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []
