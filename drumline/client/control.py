"""The control socket: how the CLI and the SDK talk to the gateway.

It lives here and not with the processes' protocol, so that users' programs import nothing but
`drumline`. One request, one answer; a request that got no answer is sent again with its id, and
the gateway does it once.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from drumline.errors import DecodeError, DrumlineError, NotReachable, restore

VERSION = 1
CONNECT_SECONDS = 2
"""A gateway that is being started again is back before."""
LIVES = 2
"""So many gateways more are asked after one has died: a question may be what they die of."""


class ControlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command and the id that makes it happen once."""

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


encode = msgspec.msgpack.Encoder().encode
_requests = msgspec.msgpack.Decoder(ControlRequest)
_answers = msgspec.msgpack.Decoder(ControlReply)


def decode_request(frame: bytes) -> ControlRequest:
    try:
        request = _requests.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(reason=str(error)) from None
    if request.version != VERSION:
        raise DecodeError(reason=f"control version {request.version}, this is {VERSION}")
    return request


class Control:
    """A connection to a gateway. Not for use by two threads at once."""

    def __init__(self, endpoint: str, timeout: float = 30.0, actor: str = "") -> None:
        import zmq

        self._zmq = zmq
        self._endpoint = endpoint
        self._timeout = timeout
        self._actor = actor
        self._context = zmq.Context(io_threads=1)
        self._connect()

    def call(
        self, command: str, arguments: dict[str, Any], request_id: str | None = None
    ) -> dict[str, Any]:
        """Do a command; raises the error that the gateway answered with."""
        request = ControlRequest(
            request_id or new_request_id(), command, arguments, actor=self._actor
        )
        answer = self._exchange(request)
        if answer.error is not None:
            raise restore(answer.error, answer.message, answer.details)
        return answer.data or {}

    def close(self) -> None:
        self._disconnect()
        self._context.term()

    def _exchange(self, request: ControlRequest) -> ControlReply:
        frame = encode(request)
        deadline = time.monotonic() + self._timeout
        lives = LIVES
        self._send(frame)
        while (left := deadline - time.monotonic()) > 0:
            ready = dict(self._poller.poll(left * 1000))
            if self._socket in ready:
                answer = _answers.decode(self._socket.recv())
                if answer.id in (request.id, ""):  # without an id: it could not even be read
                    return answer
            elif self._losses in ready:
                if not lives:
                    raise NotReachable(what="The gateway", reason="it dies again and again")
                lives -= 1
                self._send(frame)  # whoever was to answer is gone: the next one is asked
        self._reconnect()
        raise NotReachable(what="The gateway", reason=f"no answer within {self._timeout:g} s")

    def _send(self, frame: bytes) -> None:
        if self._losses.poll(0):
            # With a new socket: the old one would for a moment still take messages to nobody.
            self._reconnect()
        if not self._socket.poll(CONNECT_SECONDS * 1000, self._zmq.POLLOUT):
            raise NotReachable(
                what="The gateway", reason=f"nobody answers at {self._endpoint}; is Drumline up?"
            )
        self._socket.send(frame)

    def _connect(self) -> None:
        zmq = self._zmq
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._losses = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.connect(self._endpoint)
        self._poller = zmq.Poller()
        for socket in (self._socket, self._losses):
            self._poller.register(socket, zmq.POLLIN)

    def _reconnect(self) -> None:
        self._disconnect()
        self._connect()

    def _disconnect(self) -> None:
        self._socket.disable_monitor()
        self._losses.close(linger=0)
        self._socket.close(linger=0)


def new_request_id() -> str:
    return uuid.uuid4().hex


def error_reply(request_id: str, error: DrumlineError) -> ControlReply:
    """The reply for an error. It names the nearest class of `drumline.errors`: the client may not
    have imported the module of a more special one."""
    known = next(kind for kind in type(error).__mro__ if kind.__module__ == "drumline.errors")
    details = msgspec.to_builtins(error.details, enc_hook=str)
    return ControlReply(request_id, error=known.__name__, message=str(error), details=details)
