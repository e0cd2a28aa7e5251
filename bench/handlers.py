"""The handlers of the benchmarks."""

import os
import struct
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from drumline import Task, handler

FOLDER_VARIABLE = "BENCH_WITNESS"
_RECORD = struct.Struct("<qdd")


class Start(NamedTuple):
    """A run's start, written down outside of Drumline."""

    task_id: int
    due: float
    at: float


@handler("bench.stamp")
def stamp(task: Task) -> int:
    """When it started, on the host's clock."""
    return time.time_ns()


@handler("bench.witness")
def witness(task: Task) -> None:
    """Writes down when it was due and when it started."""
    at = time.time()
    due = task.run.scheduled_at / 1e6 if task.run is not None else task.param["due"]
    os.write(_file(), _RECORD.pack(task.id, due, at))


@cache
def _file() -> int:
    path = Path(os.environ[FOLDER_VARIABLE]) / "starts"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def read_starts(folder: Path, tail: int | None = None) -> list[Start]:
    """All starts, or the last ones only."""
    path = folder / "starts"
    if not path.exists():
        return []
    data = path.read_bytes() if tail is None else _end(path, tail * _RECORD.size)
    return [Start(*record) for record in _RECORD.iter_unpack(data)]


def _end(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        whole = file.seek(0, os.SEEK_END) // _RECORD.size * _RECORD.size
        file.seek(max(0, whole - size))
        return file.read(min(size, whole))
