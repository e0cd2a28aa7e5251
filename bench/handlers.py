"""The handlers of the benchmarks."""

import os
import signal
import struct
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from drumline import Task, handler

FOLDER_VARIABLE = "BENCH_WITNESS"
_RECORD = struct.Struct("<qdd")


class Start(NamedTuple):
    """The start of a run, recorded outside of Drumline."""

    task_id: int
    due: float
    at: float


@handler("bench.stamp")
def stamp(task: Task) -> int:
    """Returns the time of its start."""
    return time.time_ns()


@handler("bench.witness")
def witness(task: Task) -> None:
    """Records when it was due and when it started."""
    at = time.time()
    due = task.run.scheduled_at / 1e6 if task.run is not None else task.param["due"]
    os.write(_file(), _RECORD.pack(task.id, due, at))


@handler("bench.spin")
def spin(task: Task) -> None:
    """Records its start; then loops in C and ignores SIGTERM, so that only SIGKILL ends it."""
    os.write(_file(), _RECORD.pack(task.id, 0.0, time.time()))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        sum(range(10**10))


@handler("bench.hold", timeout=600)
def hold(task: Task) -> None:
    """Records its start and sleeps for longer than a measurement takes."""
    os.write(_file(), _RECORD.pack(task.id, 0.0, time.time()))
    time.sleep(300)


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
