"""A peer's connection to the dispatcher: registers, sends heartbeats, reconnects after silence."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import structlog
import zmq

from actors.event_loop import EventLoop, Timer
from drumline.errors import DecodeError
from protocol import codec, sockets
from protocol.messages import (
    AnyMessage,
    Heartbeat,
    Message,
    Register,
    RegisterAgain,
    Registered,
    Unregister,
)

log = structlog.get_logger()

CONNECT_SECONDS = 0.005
"""First wait between attempts to send Register before the socket is connected; it doubles."""
REGISTER_SECONDS = 0.2


class DispatcherConnection:
    """One DEALER at a time. `on_registered` is called after each new registration."""

    def __init__(
        self,
        loop: EventLoop,
        endpoint: str,
        registration: Callable[[], Register],
        receive: Callable[[AnyMessage], None],
        heartbeat: Callable[[], Heartbeat] = Heartbeat,
        on_registered: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._endpoint = endpoint
        self._registration = registration
        self._receive = receive
        self._heartbeat = heartbeat
        self._on_registered = on_registered
        self._context = sockets.context()
        self._socket = sockets.connected_dealer(self._context, endpoint)
        self.epoch = 0
        """The dispatcher's epoch; 0 while not registered."""
        self._last_message = loop.now()
        self._expire_seconds = 5.0
        self._heartbeat_timer: Timer | None = None
        loop.add_reader(self._socket, self._receive_messages)
        loop.call_later(0, self._send_register)

    def send(self, message: Message) -> bool:
        """Send without waiting; False if the dispatcher is not connected."""
        try:
            self._socket.send(codec.encode(message), zmq.DONTWAIT)
            return True
        except zmq.Again:
            return False

    def close(self) -> None:
        """Unregister; queued messages get half a second to be sent."""
        if self.epoch:
            self.send(Unregister())
        self._loop.remove_reader(self._socket)
        self._socket.close(linger=500)
        self._context.term()

    def _send_register(self, wait: float = CONNECT_SECONDS) -> None:
        """Send Register until Registered comes; more often while the socket is not connected."""
        if not self.epoch:
            if self.send(self._registration()):
                wait = REGISTER_SECONDS
            retry = partial(self._send_register, min(2 * wait, REGISTER_SECONDS))
            self._loop.call_later(wait * random.uniform(0.5, 1.5), retry)

    def _receive_messages(self) -> None:
        self._last_message = self._loop.now()
        while True:
            try:
                frame = self._socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                message = codec.decode(frame)
            except DecodeError as error:
                log.warning("Invalid message ignored", action="bad_frame", error=str(error))
                continue
            match message:
                case Registered():
                    self._registered(message)
                case RegisterAgain():
                    self._register_again()
                case Heartbeat():
                    pass
                case _:
                    self._receive(message)

    def _registered(self, message: Registered) -> None:
        if self.epoch == message.epoch:
            return
        self.epoch = message.epoch
        self._expire_seconds = message.expire_seconds
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
        self._heartbeat_timer = self._loop.call_every(
            message.heartbeat_seconds, self._send_heartbeat
        )
        self._on_registered()

    def _send_heartbeat(self) -> None:
        if self._loop.now() - self._last_message > self._expire_seconds:
            log.warning("Dispatcher silent; reconnecting", action="dispatcher_silent")
            self.reconnect()
        else:
            self.send(self._heartbeat())

    def reconnect(self) -> None:
        """Open a new socket with a new routing id: messages queued in the old one are void."""
        self._loop.remove_reader(self._socket)
        self._socket.close(linger=0)
        self._socket = sockets.connected_dealer(self._context, self._endpoint)
        self._loop.add_reader(self._socket, self._receive_messages)
        self._register_again()

    def _register_again(self) -> None:
        """Register again: the dispatcher's record of this peer is out of date."""
        self._last_message = self._loop.now()
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
            self._heartbeat_timer = None
        if self.epoch:
            self.epoch = 0
            self._send_register()
