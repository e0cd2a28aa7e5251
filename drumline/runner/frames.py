"""The frames between a keeper and its runner: MessagePack with a length before each frame.

Tickets have a pipe of their own. A ticket is sixteen bytes: the id of a task that may start now,
and its fence. Only one reader gets a ticket, so a task is either started by the runner or taken
back by the keeper, never both.
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
    """Tasks that the keeper holds; each starts when its ticket comes. `callbacks` has the URL and
    token of each task whose handler uses callbacks."""

    tasks: tuple[DueTask, ...]
    callbacks: dict[int, tuple[str, str]] = {}


class CaptureStored(Frame, frozen=True):
    """The change from build_param is committed. If not `held`, the keeper no longer
    holds the task and its handler must change nothing."""

    task_id: int
    held: bool


class CancelTask(Frame, frozen=True):
    """Cancel a task that runs in the event loop."""

    task_id: int


class ForgetTasks(Frame, frozen=True):
    """The keeper has taken the tickets of these tasks back: they will not start."""

    task_ids: tuple[int, ...]


class PartitionOpened(Frame, frozen=True):
    """The partition to run, or None if the keeper does not hold its task any more."""

    task_id: int
    partition: PartitionInfo | None


class CheckpointStored(Frame, frozen=True):
    """A checkpoint is stored, and `directives` apply from now on. Without directives it could not
    be stored. If not `held`, the keeper no longer holds the task and no item may start."""

    task_id: int
    start: int
    held: bool
    directives: PartitionDirectives | None = None


# --- runner to keeper --------------------------------------------------------------------------


class RunnerReady(Frame, frozen=True):
    """The handlers of this runner, and the errors of modules that could not be imported."""

    manifest: tuple[HandlerSpec, ...]
    problems: tuple[str, ...]
    loop_thread: int = 0
    """The kernel id of the thread that runs the async tasks; 0 if there is none."""


class StoreCapture(Frame, frozen=True):
    """The change from build_param, as JSON; the runner waits for CaptureStored."""

    task_id: int
    before: str
    after: str


class StackReport(Frame, frozen=True):
    """The stack of a task at the moment it was asked to stop."""

    task_id: int
    text: str


class OpenPartition(Frame, frozen=True):
    """A partition has started; the runner waits for PartitionOpened."""

    task_id: int


class StoreCheckpoint(Frame, frozen=True):
    """How far a partition is. The runner sends the next one after CheckpointStored has come."""

    task_id: int
    checkpoint: Checkpoint


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """The data that an error carries besides its text."""

    final: bool
    cause: Cause | None = None
    result: str | None = None
    retry_after: float = 0.0


class RunEnded(Frame, frozen=True):
    """A run has ended. `stopped`: it ended because the keeper asked it to."""

    task_id: int
    seconds: float
    ok: bool
    text: str | None = None
    """The result as JSON, or the text of the error."""
    stopped: bool = False
    callback_timeout: float | None = None
    """Seconds to wait for a callback, if the handler asked for one."""
    failure: Failure | None = None


ToRunner = RunTasks | CaptureStored | CancelTask | ForgetTasks | PartitionOpened | CheckpointStored
ToKeeper = RunnerReady | StoreCapture | StackReport | OpenPartition | StoreCheckpoint | RunEnded

_encode = msgspec.msgpack.Encoder().encode


def encode_frame(frame: Frame) -> bytes:
    """A frame with its length before it."""
    payload = _encode(frame)
    return _LENGTH.pack(len(payload)) + payload


class Channel:
    """One end of the pipe."""

    def __init__(self, end: socket.socket, incoming: Any) -> None:
        self.end = end
        self._decode: Callable[[Buffer], Frame] = msgspec.msgpack.Decoder(incoming).decode
        self._buffer = bytearray()

    def send(self, frame: Frame) -> None:
        """Write a whole frame; blocks until the other side has read enough."""
        self.end.sendall(encode_frame(frame))

    def receive(self) -> list[Frame] | None:
        """The frames that one read completes; None when the other end is closed."""
        try:
            data = self.end.recv(1 << 18)
        except ConnectionResetError:
            return None
        if not data:
            return None
        self._buffer += data
        return list(self._decode_frames())

    def _decode_frames(self) -> Iterator[Frame]:
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

    def admits(self, task: DueTask | None) -> bool:
        """Whether this is the run that the ticket is for. A task that was taken back and assigned
        again must wait for its new RunTasks frame: the old one has an older fence and may lack
        the captured change."""
        return task is not None and task.fence == self.fence


def encode_tickets(tasks: Iterable[DueTask]) -> bytes:
    return b"".join(_TICKET.pack(task.id, task.fence) for task in tasks)


def read_ticket(fd: int) -> Ticket | None:
    """The next ticket, or None if the pipe is empty."""
    try:
        data = os.read(fd, _TICKET.size)
    except BlockingIOError:
        return None
    return Ticket(*_TICKET.unpack(data)) if len(data) == _TICKET.size else None
