"""The pipe between a keeper and its runner: length-prefixed MessagePack, one frame a message.

Tickets go through a pipe of their own, sixteen bytes each: a task that may start now, and under
which fence. Whoever reads a ticket has it alone, so a task is either started by the runner or
taken back by the keeper, never both.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from drumline.domain.policy import HandlerSpec
from drumline.domain.states import Cause
from drumline.domain.sweeps.partition import Checkpoint, PartitionDirectives, PartitionInfo
from drumline.domain.task import DueTask

_LENGTH = struct.Struct("<I")
_TICKET = struct.Struct("<qq")

Buffer = bytes | bytearray | memoryview


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The root of all frames."""


# --- keeper to runner --------------------------------------------------------------------------


class RunTasks(Frame, frozen=True):
    """Tasks that are held; each starts when its ticket comes. With where and by which token those
    can be called back whose handler asks for it."""

    tasks: tuple[DueTask, ...]
    callbacks: dict[int, tuple[str, str]] = {}


class CaptureStored(Frame, frozen=True):
    """What build_param found is committed: go on. Or it is not ours any more: do not."""

    task_id: int
    ours: bool


class CancelTask(Frame, frozen=True):
    """Stop this task, if it runs in the event loop."""

    task_id: int


class ForgetTasks(Frame, frozen=True):
    """These will not be started: their tickets were taken back."""

    task_ids: tuple[int, ...]


class PartitionOpened(Frame, frozen=True):
    """A partition of a sweep, to be gone on with; none if it is not ours any more."""

    task_id: int
    part: PartitionInfo | None


class CheckpointStored(Frame, frozen=True):
    """A checkpoint is stored, and this is what goes from now on. Without `live` it could not be
    stored; if it is not ours any more, nothing else will be."""

    task_id: int
    start: int
    ours: bool
    live: PartitionDirectives | None = None


# --- runner to keeper --------------------------------------------------------------------------


class RunnerReady(Frame, frozen=True):
    """What this runner can run, and what could not be imported."""

    manifest: tuple[HandlerSpec, ...]
    problems: tuple[str, ...]
    loop_thread: int = 0
    """The kernel's number of the thread that runs the async tasks; 0 if there is none."""


class StoreCapture(Frame, frozen=True):
    """What build_param found, as JSON; the runner waits for Captured."""

    task_id: int
    before: str
    after: str


class StackReport(Frame, frozen=True):
    """Where a task was when it was asked to stop."""

    task_id: int
    text: str


class OpenPartition(Frame, frozen=True):
    """A partition of a sweep is begun: where is it to go on?"""

    task_id: int


class StoreCheckpoint(Frame, frozen=True):
    """How far a partition is. The runner sends the next one after CheckpointStored has come."""

    task_id: int
    checkpoint: Checkpoint


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """What an error says besides its text."""

    final: bool
    cause: Cause | None = None
    result: str | None = None
    wait: float = 0.0


class RunEnded(Frame, frozen=True):
    """A task ran to its end. `stopped`: it ended because it was asked to."""

    task_id: int
    seconds: float
    ok: bool
    text: str | None = None
    """Its result as JSON, or what its error says."""
    stopped: bool = False
    wait: float | None = None
    """It only began: seconds in which it is to be called back."""
    failure: Failure | None = None


ToRunner = RunTasks | CaptureStored | CancelTask | ForgetTasks | PartitionOpened | CheckpointStored
ToKeeper = RunnerReady | StoreCapture | StackReport | OpenPartition | StoreCheckpoint | RunEnded

_encode = msgspec.msgpack.Encoder().encode


def encode_frame(frame: Frame) -> bytes:
    """A frame as it goes through the pipe."""
    payload = _encode(frame)
    return _LENGTH.pack(len(payload)) + payload


class Channel:
    """One end of the pipe."""

    def __init__(self, end: socket.socket, incoming: Any) -> None:
        self.end = end
        self._decode: Callable[[Buffer], Frame] = msgspec.msgpack.Decoder(incoming).decode
        self._buffer = bytearray()

    def send(self, frame: Frame) -> None:
        """Write a whole frame, however long it takes the other side to read."""
        self.end.sendall(encode_frame(frame))

    def receive(self) -> list[Frame] | None:
        """What one read brings; None when the other end is closed."""
        try:
            data = self.end.recv(1 << 18)
        except ConnectionResetError:
            return None
        if not data:
            return None
        self._buffer += data
        return list(self._frames())

    def _frames(self) -> Iterator[Frame]:
        start, end = 0, len(self._buffer)
        while end - start >= 4:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if end - start - 4 < length:
                break
            yield self._decode(memoryview(self._buffer)[start + 4 : start + 4 + length])
            start += 4 + length
        del self._buffer[:start]


class Ticket(NamedTuple):
    """The right to start a task once."""

    task_id: int
    fence: int

    def admits(self, due: DueTask | None) -> bool:
        """Is this the very task that was meant? One that was taken back and came again waits for
        its new description: the old one has another fence and may lack what was captured."""
        return due is not None and due.fence == self.fence


def encode_tickets(dues: Iterable[DueTask]) -> bytes:
    return b"".join(_TICKET.pack(due.id, due.fence) for due in dues)


def read_ticket(fd: int) -> Ticket | None:
    """The next ticket, or None if there is none."""
    try:
        data = os.read(fd, _TICKET.size)
    except BlockingIOError:
        return None
    return Ticket(*_TICKET.unpack(data)) if len(data) == _TICKET.size else None
