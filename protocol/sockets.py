"""Creates the processes' sockets with their options."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import zmq

from drumline.errors import NotReachable

MAX_MESSAGE = 32 * 1024 * 1024
HIGH_WATER = 10_000


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context of this process. Used after a fork, a context loses messages silently."""
    return zmq.Context(io_threads=1)


def bound_router(ctx: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """The only ROUTER of an endpoint. A file lock refuses a second process: a second bind would
    silently take the endpoint over from the first."""
    path = Path(endpoint.removeprefix("ipc://"))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise NotReachable(what=str(path), reason="another process serves it already") from None
    socket = _with_options(ctx.socket(zmq.ROUTER))
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.bind(endpoint)
    return socket


def connected_dealer(ctx: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """A DEALER with a fresh routing id. It does not queue for an absent server: a message that
    arrives minutes late does more harm than one that is not sent."""
    socket = _with_options(ctx.socket(zmq.DEALER))
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    socket.connect(endpoint)
    return socket


def _with_options(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
    return socket
