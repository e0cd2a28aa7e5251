"""Every message between Drumline's processes. SPEC.md says when each is sent and why.

A message may be lost, doubled or late. So each one either carries the sender's complete state of
its subject, or asks for something that the database will check.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from drumline.domain.dispatch.status import QueueStatus, WorkerStatus
from drumline.domain.task import DueTask

VERSION = 1


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """The root of all messages."""


class HandlerSummary(msgspec.Struct, frozen=True, array_like=True):
    """What a dispatcher needs to know about a handler to cut bundles for it."""

    key: str
    is_async: bool
    is_sweep: bool = False


class Timing(msgspec.Struct, frozen=True, array_like=True):
    """How long several runs of one handler took together."""

    key: str
    runs: int
    seconds: float


class LongRun(msgspec.Struct, frozen=True, array_like=True):
    """A task that has been running for a while, and the time left until its deadline."""

    task_id: int
    fence: int
    seconds_left: float


class RequestKind(StrEnum):
    """What a DispatcherRequest asks for."""

    QUEUE = "queue"
    WORKERS = "workers"
    DRAIN = "drain"
    KILL = "kill"
    RECYCLE = "recycle"


# --- from a peer to the dispatcher -------------------------------------------------------------


class Register(Message, frozen=True):
    """Register with the dispatcher; repeated until Registered comes. A worker adds its handlers
    and the tasks that it holds."""

    kind: str
    name: str
    pid: int
    keeper_id: int = 0
    handlers: tuple[HandlerSummary, ...] = ()
    async_slots: int = 0
    held: tuple[int, ...] = ()
    held_partitions: tuple[int, ...] = ()


class Heartbeat(Message, frozen=True):
    """A worker adds the last bundle it received, the tasks it holds, and its long runs."""

    received: int = 0
    held: tuple[int, ...] = ()
    long_runs: tuple[LongRun, ...] = ()


class TasksReleased(Message, frozen=True):
    """The worker no longer holds these tasks; the database has their states."""

    received: int
    task_ids: tuple[int, ...]
    finished: int = 0
    timings: tuple[Timing, ...] = ()


class Feed(Message, frozen=True):
    """Due tasks, the paused types, and the node's limit of sweep partitions."""

    tasks: tuple[DueTask, ...]
    paused: tuple[str, ...] = ()
    partition_limit: int = 0


class Trigger(Message, frozen=True):
    """There may be new due tasks; forwarded to the scanner. It may carry the tasks themselves."""

    tasks: tuple[DueTask, ...] = ()


class DispatcherRequest(Message, frozen=True):
    """A query or an instruction, answered by DispatcherReply."""

    id: int
    kind: RequestKind
    worker: str = ""
    task_id: int = 0


class Unregister(Message, frozen=True):
    """The peer ends and holds no tasks."""


# --- from the dispatcher to a peer -------------------------------------------------------------


class Registered(Message, frozen=True):
    """The peer is registered: how often to send heartbeats, and how long silence may last."""

    epoch: int
    heartbeat_seconds: float
    expire_seconds: float


class RegisterAgain(Message, frozen=True):
    """The dispatcher does not know the sender, which must register again."""


class FeedRequest(Message, frozen=True):
    """To the scanner: how many tasks the queue has room for, and which tasks have left."""

    epoch: int
    room: int
    removed: tuple[int, ...]
    queued: int
    finished: int


class Bundle(Message, frozen=True):
    """To a worker: tasks to run. An unconfirmed bundle is sent again with the same number."""

    number: int
    tasks: tuple[DueTask, ...]


class Kill(Message, frozen=True):
    """To a worker: stop this run now."""

    task_id: int
    fence: int
    reason: str


class Drain(Message, frozen=True):
    """To a worker: finish the tasks that run, give back the others, and end."""


class DispatcherReply(Message, frozen=True):
    """The answer to a DispatcherRequest."""

    id: int
    queue: QueueStatus | None = None
    workers: tuple[WorkerStatus, ...] = ()
    found: bool = False


AnyMessage = (
    Register | Heartbeat | TasksReleased | Feed | Trigger | DispatcherRequest | Unregister
    | Registered | RegisterAgain | FeedRequest | Bundle | Kill | Drain | DispatcherReply
)  # fmt: skip
