"""A peer's link to the dispatcher: says hello, beats, and starts anew after silence."""

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
HELLO_SECONDS = 0.2


class DispatcherConnection:
    """One DEALER at a time. `connected` is called with each new welcome."""

    def __init__(
        self,
        loop: EventLoop,
        endpoint: str,
        hello: Callable[[], Register],
        receive: Callable[[AnyMessage], None],
        beat: Callable[[], Heartbeat] = Heartbeat,
        connected: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._endpoint = endpoint
        self._hello = hello
        self._receive = receive
        self._beat = beat
        self._connected = connected
        self._context = sockets.context()
        self._socket = sockets.connected_dealer(self._context, endpoint)
        self.epoch = 0
        self._heard = loop.now()
        self._expire = 5.0
        self._beats: Timer | None = None
        loop.add_reader(self._socket, self._readable)
        loop.call_later(0, self._knock)

    def send(self, message: Message) -> bool:
        """Send if the dispatcher is there; False if not. Never waits."""
        try:
            self._socket.send(codec.encode(message), zmq.DONTWAIT)
            return True
        except zmq.Again:
            return False

    def close(self) -> None:
        """Say goodbye; whatever is still to be sent gets a moment to leave."""
        if self.epoch:
            self.send(Unregister())
        self._loop.remove_reader(self._socket)
        self._socket.close(linger=500)
        self._context.term()

    def _knock(self, wait: float = CONNECT_SECONDS) -> None:
        """Say hello until welcomed; soon again while there is no connection to say it over."""
        if not self.epoch:
            if self.send(self._hello()):
                wait = HELLO_SECONDS
            again = partial(self._knock, min(2 * wait, HELLO_SECONDS))
            self._loop.call_later(wait * random.uniform(0.5, 1.5), again)

    def _readable(self) -> None:
        self._heard = self._loop.now()
        while True:
            try:
                frame = self._socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                message = codec.decode(frame)
            except DecodeError as error:
                log.warning("A message could not be read.", action="bad_frame", error=str(error))
                continue
            match message:
                case Registered():
                    self._welcomed(message)
                case RegisterAgain():
                    self.restart()
                case Heartbeat():
                    pass
                case _:
                    self._receive(message)

    def _welcomed(self, message: Registered) -> None:
        if self.epoch == message.epoch:
            return
        self.epoch = message.epoch
        self._expire = message.expire_seconds
        if self._beats is not None:
            self._beats.cancel()
        self._beats = self._loop.call_every(message.beat_seconds, self._tick)
        self._connected()

    def _tick(self) -> None:
        if self._loop.now() - self._heard > self._expire:
            log.warning("The dispatcher is silent; connecting anew.", action="link_lost")
            self._renew()
        else:
            self.send(self._beat())

    def _renew(self) -> None:
        """A new socket and a new identity: what the old one still had in its queues is void."""
        self._loop.remove_reader(self._socket)
        self._socket.close(linger=0)
        self._socket = sockets.connected_dealer(self._context, self._endpoint)
        self._loop.add_reader(self._socket, self._readable)
        self.restart()

    def restart(self) -> None:
        """Say hello again: who we are, or what we hold, is not what the dispatcher believes."""
        self._heard = self._loop.now()
        if self._beats is not None:
            self._beats.cancel()
            self._beats = None
        if self.epoch:
            self.epoch = 0
            self._knock()
