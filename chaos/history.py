"""The history of a chaos run: what handlers, clients and faults did, recorded outside the database.

Every process appends to a file of its own, one JSON line per record and one write per line, so a
record survives a SIGKILL of its writer. Times are seconds on the host's monotonic clock, which all
processes share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

R = TypeVar("R", bound="Record")


class Record(msgspec.Struct, frozen=True, tag=True, tag_field="record", kw_only=True):
    at: float


class Began(Record, frozen=True, kw_only=True):
    """A handler has begun to run a task."""

    task_id: int
    fence: int
    attempt: int
    type: str
    timeout: float
    runner_pid: int
    keeper_pid: int
    job_id: int | None = None


class Ticked(Record, frozen=True, kw_only=True):
    """A handler is still running its task."""

    task_id: int
    fence: int


class Ended(Record, frozen=True, kw_only=True):
    """A handler has ended. An exception is the name of its class."""

    task_id: int
    fence: int
    exception: str | None = None


class ItemDone(Record, frozen=True, kw_only=True):
    """A sweep's handler has handled an item."""

    sweep_id: int
    index: int


class TargetChanged(Record, frozen=True, kw_only=True):
    """A handler has changed a target, or rolled the change back."""

    task_id: int
    fence: int
    target: str
    value: str


class Called(Record, frozen=True, kw_only=True):
    """A client has sent a command. No answer and no error: its outcome is unknown."""

    request_id: str
    command: str
    arguments: dict[str, Any]
    answer: dict[str, Any] | None = None
    error: str | None = None


class CallbackSent(Record, frozen=True, kw_only=True):
    """The target of an asynchronous call has called back."""

    task_id: int
    token: str
    status: int


class FaultInjected(Record, frozen=True, kw_only=True):
    """A fault happened from `at` to `until`; `pids` are the processes that it hit."""

    kind: str
    until: float
    pids: tuple[int, ...] = ()
    detail: str = ""
    excuses: bool = True
    """Whether the node may be slow during the fault and just after it."""


class FaultMissed(Record, frozen=True, kw_only=True):
    """A planned fault was not injected, or it hit nothing."""

    kind: str
    reason: str


class FinalTask(msgspec.Struct, frozen=True):
    """A task in the database at the end of the run."""

    id: int
    type: str
    status: str
    cause: str | None
    deaths: int
    batch_id: int | None
    job_id: int | None
    scheduled_at: int | None
    why: str | None = None
    """Why an unfinished task waits, in Drumline's own words."""


class Waiting(Record, frozen=True, kw_only=True):
    """A sample of a running node: free workers, and due tasks that wait by type."""

    free_workers: int
    due: dict[str, int]
    """Without the types that no worker serves at this time."""


class Snapshot(Record, frozen=True, kw_only=True):
    """The database after the run, once no task is unfinished or the deadline has passed."""

    tasks: tuple[FinalTask, ...]
    wrong_counters: dict[int, str]
    """Batches whose counters differ from their tasks."""
    finished_sweeps: dict[int, int]
    """Finished sweeps, and the number of their items."""
    concurrency_limits: dict[int, int]
    """Jobs with a limit."""


class NodeLogLine(Record, frozen=True, kw_only=True):
    """A line from the log of a process of the node that the checker needs."""

    action: str
    process: str
    pid: int | None = None
    fields: dict[str, Any] = {}


AnyRecord = (
    Began | Ticked | Ended | ItemDone | TargetChanged | Called | CallbackSent | FaultInjected
    | FaultMissed | Waiting | Snapshot | NodeLogLine
)  # fmt: skip

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)


class Recorder:
    """Appends the records of one process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{time.monotonic_ns()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, record: Record) -> None:
        os.write(self._file, _encoder.encode(record) + b"\n")


@dataclass(frozen=True)
class Run:
    """One execution of a handler: from its begin to the last sign of it."""

    began: Began
    last: float
    ended: Ended | None

    @property
    def key(self) -> tuple[int, int]:
        return (self.began.task_id, self.began.fence)


@dataclass
class History:
    """All records of a run, in the order of time."""

    records: list[Record] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> History:
        records: list[Record] = []
        for file in folder.glob("*.jsonl"):
            # The last line of a killed process may be incomplete.
            for line in file.read_bytes().split(b"\n")[:-1]:
                records.append(_decoder.decode(line))
        return cls(sorted(records, key=lambda record: record.at))

    def of(self, kind: type[R]) -> Iterator[R]:
        return (record for record in self.records if isinstance(record, kind))

    def runs(self) -> list[Run]:
        """Every execution of a handler, in the order of their begins."""
        last: dict[tuple[int, int], float] = {}
        ends: dict[tuple[int, int], Ended] = {}
        begins: list[Began] = []
        for record in self.records:
            match record:
                case Began():
                    begins.append(record)
                    last[record.task_id, record.fence] = record.at
                case Ticked() | TargetChanged():
                    last[record.task_id, record.fence] = record.at
                case Ended():
                    last[record.task_id, record.fence] = record.at
                    ends[record.task_id, record.fence] = record
        return [
            Run(began, last[began.task_id, began.fence], ends.get((began.task_id, began.fence)))
            for began in begins
        ]

    def faults(self) -> list[FaultInjected]:
        return list(self.of(FaultInjected))

    def snapshot(self) -> Snapshot | None:
        return next(self.of(Snapshot), None)
