"""The control socket: how the CLI and the SDK reach the gateway.

It is defined here and not in `protocol`, so that programs of users import nothing but `drumline`.
A request without a reply is sent again with its id; the gateway executes an id once.
"""

from __future__ import annotations

import random
import time
import uuid
from typing import Any

import msgspec

from drumline.errors import DecodeError, DrumlineError, NotReachable, restore

VERSION = 1
CONNECT_SECONDS = 2
"""A gateway that its supervisor restarts is back within this time."""
MAX_RESTARTS = 2
"""A request that several gateways in a row did not survive may be what ends them."""
TRIES = 3
RETRY_PAUSE = 0.5
"""The longest pause before the second try, in seconds; the one before the third is twice as long.
The pauses are random, so that the clients of a gateway do not all come back at once."""


class ControlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command, and the id under which it is executed once."""

    id: str
    command: str
    arguments: dict[str, Any]
    version: int = VERSION
    actor: str = ""


class ControlReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a command: data, or an error."""

    id: str
    data: dict[str, Any] | None = None
    error: str | None = None
    message: str = ""
    details: dict[str, Any] = {}


class RestartLimit(NotReachable):
    """The gateway restarted {restarts} times while the request was pending."""


encode = msgspec.msgpack.Encoder().encode
_requests = msgspec.msgpack.Decoder(ControlRequest)
_replies = msgspec.msgpack.Decoder(ControlReply)


def decode_request(frame: bytes) -> ControlRequest:
    try:
        request = _requests.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(reason=str(error)) from None
    if request.version != VERSION:
        raise DecodeError(reason=f"control version {request.version}, this is {VERSION}")
    return request


def error_reply(request_id: str, error: DrumlineError) -> ControlReply:
    """The reply for an error. It names the nearest class of `drumline.errors`: the client may not
    have imported the module of a more special one."""
    known = next(kind for kind in type(error).__mro__ if kind.__module__ == "drumline.errors")
    details = msgspec.to_builtins(error.details, enc_hook=str)
    return ControlReply(request_id, error=known.__name__, message=str(error), details=details)


def new_request_id() -> str:
    return uuid.uuid4().hex


class Control:
    """A connection to a gateway. Not for use by two threads at once."""

    def __init__(
        self, endpoint: str, timeout: float = 30.0, actor: str = "", tries: int = 1
    ) -> None:
        import zmq

        self._zmq = zmq
        self._endpoint = endpoint
        self._timeout = timeout
        self._actor = actor
        self._tries = tries
        self._context = zmq.Context(io_threads=1)
        self._connect()

    def call(
        self, command: str, arguments: dict[str, Any], request_id: str | None = None
    ) -> dict[str, Any]:
        """Execute a command; raises the error that the gateway replied with.

        While the gateway or what it needs (the database, the dispatcher) cannot be reached, the
        request is repeated under its id, at most `tries` times and for about twice the timeout.
        """
        request = ControlRequest(
            request_id or new_request_id(), command, arguments, actor=self._actor
        )
        began = time.monotonic()
        for number in range(1, self._tries + 1):
            try:
                reply = self._exchange(request)
                if reply.error is None:
                    return reply.data or {}
                raise restore(reply.error, reply.message, reply.details)
            except RestartLimit:
                raise
            except NotReachable:
                if number == self._tries or time.monotonic() - began > 2 * self._timeout:
                    raise
            time.sleep(random.uniform(0, RETRY_PAUSE * number))
        raise ValueError(f"a request needs at least one try, not {self._tries}")

    def close(self) -> None:
        self._disconnect()
        self._context.term()

    def _exchange(self, request: ControlRequest) -> ControlReply:
        """Send a request and receive its reply."""
        frame = encode(request)
        deadline = time.monotonic() + self._timeout
        restarts = 0
        self._send(frame)
        while (left := deadline - time.monotonic()) > 0:
            ready = dict(self._poller.poll(left * 1000))
            if self._socket in ready:
                reply = _replies.decode(self._socket.recv())
                if reply.id in (request.id, ""):  # no id: the gateway could not read the request
                    return reply
            elif self._disconnects in ready:
                if restarts == MAX_RESTARTS:
                    raise RestartLimit(restarts=restarts + 1)
                restarts += 1
                self._send(frame)  # the gateway that had the request has ended
        self._reconnect()
        raise NotReachable(what="The gateway", reason=f"no reply within {self._timeout:g} s")

    def _send(self, frame: bytes) -> None:
        if self._disconnects.poll(0):
            # A new socket: the old one would for a moment accept messages that are lost.
            self._reconnect()
        if not self._socket.poll(CONNECT_SECONDS * 1000, self._zmq.POLLOUT):
            raise NotReachable(
                what="The gateway", reason=f"nothing listens at {self._endpoint}; is Drumline up?"
            )
        self._socket.send(frame)

    def _connect(self) -> None:
        zmq = self._zmq
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._disconnects = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.connect(self._endpoint)
        self._poller = zmq.Poller()
        for socket in (self._socket, self._disconnects):
            self._poller.register(socket, zmq.POLLIN)

    def _reconnect(self) -> None:
        self._disconnect()
        self._connect()

    def _disconnect(self) -> None:
        self._socket.disable_monitor()
        self._disconnects.close(linger=0)
        self._socket.close(linger=0)
