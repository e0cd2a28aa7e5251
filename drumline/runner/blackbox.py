"""The black box: the tasks that a runner has started, in a file that survives the runner.

The runner records a task before it starts it and erases the record at the end. The file is in
shared memory, so each write takes some hundred nanoseconds. The keeper reads it to enforce
timeouts, without a message for every task; the reaper reads it after a keeper has died, to charge
the death to the tasks that were running.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

_SLOT = struct.Struct("<qq")
SLOTS = 4096
SIZE = SLOTS * _SLOT.size


class StartedTask(NamedTuple):
    task_id: int
    started_ns: int
    """On the machine's monotonic clock, which all processes share."""


class BlackBox:
    """Slot 0 is for the sync task, the other slots are for the tasks in the event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, SIZE)
            self._map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)

    def record(self, slot: int, task_id: int, started_ns: int) -> None:
        # The time first: a reader that sees the id must not see the start of an earlier task.
        offset = slot * 16
        self._map[offset + 8 : offset + 16] = started_ns.to_bytes(8, "little")
        self._map[offset : offset + 8] = task_id.to_bytes(8, "little")

    def erase(self, slot: int) -> None:
        offset = slot * 16
        self._map[offset : offset + 8] = b"\0\0\0\0\0\0\0\0"

    def read(self) -> list[StartedTask]:
        """The tasks that are running."""
        return [
            StartedTask(task_id, started)
            for task_id, started in _SLOT.iter_unpack(self._map[:])
            if task_id
        ]

    def clear(self) -> None:
        self._map[:] = bytes(SIZE)

    def close(self) -> None:
        self._map.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
