"""Every message between Drumline's processes. SPEC.md says when each is sent and why.

A message is a hint: it may be lost, doubled or late. So each one either carries the sender's
whole state in what it talks about, or asks for something that the database will check.
"""

from __future__ import annotations

from typing import Any

import msgspec

from drumline.domain.task import DueTask

VERSION = 1


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """The root of all messages."""


class HandlerSummary(msgspec.Struct, frozen=True, array_like=True):
    """What a dispatcher needs to know of a handler to cut bundles for it."""

    key: str
    is_async: bool
    is_sweep: bool = False


class Timing(msgspec.Struct, frozen=True, array_like=True):
    """How long some runs of one handler took together."""

    key: str
    runs: int
    seconds: float


class LongRun(msgspec.Struct, frozen=True, array_like=True):
    """A task that has been running for a while, and how long it still may."""

    task_id: int
    fence: int
    seconds_left: float


# --- from a peer to the dispatcher -------------------------------------------------------------


class Register(Message, frozen=True):
    """I am here. Sent until a Welcome comes; a worker says what it can do and what it holds."""

    kind: str
    name: str
    pid: int
    incarnation: int = 0
    types: tuple[HandlerSummary, ...] = ()
    async_slots: int = 0
    held: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()


class Heartbeat(Message, frozen=True):
    """I live. A worker adds the last bundle it received, what it holds, and what runs long."""

    received: int = 0
    held: tuple[int, ...] = ()
    running: tuple[LongRun, ...] = ()


class TasksReleased(Message, frozen=True):
    """These tasks have left my hands, for whatever reason; the database knows which."""

    received: int
    task_ids: tuple[int, ...]
    finished: int = 0
    timings: tuple[Timing, ...] = ()


class Feed(Message, frozen=True):
    """Tasks that are due, the types that are paused, and how many sweeps may run here."""

    dues: tuple[DueTask, ...]
    paused: tuple[str, ...] = ()
    sweep_cap: int = 0


class Trigger(Message, frozen=True):
    """New work may be there; passed on to the scanner. What is new and due may come with it."""

    dues: tuple[DueTask, ...] = ()


class DispatcherRequest(Message, frozen=True):
    """A question or an order of an operator; answered by Told."""

    id: int
    what: str
    name: str = ""
    task_id: int = 0


class Unregister(Message, frozen=True):
    """I am going and hold nothing any more."""


# --- from the dispatcher to a peer -------------------------------------------------------------


class Registered(Message, frozen=True):
    """You are known. Beat this often; after this much silence the other side is gone."""

    epoch: int
    beat_seconds: float
    expire_seconds: float


class RegisterAgain(Message, frozen=True):
    """I do not know you: say Hello again."""


class FeedRequest(Message, frozen=True):
    """To the scanner: how many tasks more are wanted, which are no longer here, and how it goes."""

    epoch: int
    room: int
    left: tuple[int, ...]
    queued: int
    finished: int


class Bundle(Message, frozen=True):
    """To a worker: tasks to run. A bundle that is not acknowledged comes again with its number."""

    number: int
    dues: tuple[DueTask, ...]


class Kill(Message, frozen=True):
    """To a worker: stop this run now."""

    task_id: int
    fence: int
    reason: str


class Drain(Message, frozen=True):
    """To a worker: finish, give back what has not started, and end."""


class DispatcherReply(Message, frozen=True):
    """The answer to an Ask."""

    id: int
    answer: dict[str, Any]


AnyMessage = (
    Register | Heartbeat | TasksReleased | Feed | Trigger | DispatcherRequest | Unregister
    | Registered | RegisterAgain | FeedRequest | Bundle | Kill | Drain | DispatcherReply
)  # fmt: skip
