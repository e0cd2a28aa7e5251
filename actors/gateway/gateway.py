"""The gateway: the doors through which operators and programs come. It has one way in for all."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any

import structlog
import zmq
from msgspec.structs import replace

from actors.dispatcher_connection import DispatcherConnection
from actors.event_loop import EventLoop
from actors.gateway.web_server import WebServer
from drumline import commands
from drumline.client.control import (
    ControlReply,
    ControlRequest,
    decode_request,
    encode,
    error_reply,
)
from drumline.command_layer import execute
from drumline.config import Settings
from drumline.domain.task import DueTask
from drumline.errors import DecodeError, DrumlineError, NotReachable
from drumline.store import schema
from drumline.store.database import Database
from drumline.telemetry import metrics
from protocol import sockets
from protocol.messages import AnyMessage, DispatcherReply, DispatcherRequest, Register, Trigger

log = structlog.get_logger()

THREADS = 4
ASK_SECONDS = 3.0


class Gateway:
    """One per node."""

    def __init__(self, settings: Settings, loop: EventLoop, database: Database) -> None:
        self.settings = settings
        self.loop = loop
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="command")
        self.numbers = count(1)
        self.asked: dict[int, Future[dict[str, Any]]] = {}
        self.commands = commands.Context(settings, database, self.ask, self.ring)
        self.context = sockets.context()
        self.socket = sockets.bound_router(self.context, settings.endpoint("control"))
        loop.add_reader(self.socket, self.readable)
        self.link = DispatcherConnection(
            loop,
            settings.endpoint("dispatcher"),
            hello=lambda: Register("gateway", "gateway", os.getpid()),
            receive=self.told,
        )
        self.web = WebServer(settings, self.commands, died=loop.stop)
        loop.on_signal(signal.SIGTERM, loop.stop)

    # --- the control socket ----------------------------------------------------------------------

    def readable(self) -> None:
        while True:
            try:
                identity, *frames = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                request = decode_request(frames[0] if len(frames) == 1 else b"")
            except DecodeError as error:
                metrics.bad_frames.inc()
                self.send(identity, error_reply("", error))
                continue
            work = self.pool.submit(self.carry_out, request)
            work.add_done_callback(partial(self.answer, identity))

    def carry_out(self, request: ControlRequest) -> ControlReply:
        """In a thread of the pool."""
        context = replace(self.commands, actor=request.actor)
        try:
            kind = commands.by_name(request.command)
            return ControlReply(
                request.id, data=execute.execute(kind, request.arguments, request.id, context)
            )
        except DrumlineError as error:
            return error_reply(request.id, error)

    def answer(self, identity: bytes, work: Future[ControlReply]) -> None:
        self.loop.post(partial(self.send, identity, work.result()))

    def send(self, identity: bytes, answer: ControlReply) -> None:
        try:
            self.socket.send_multipart([identity, encode(answer)], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            # The caller is gone or does not read; it asks again with the same request id.
            log.info("An answer had no taker.", action="answer_lost", error=str(error))

    # --- the dispatcher --------------------------------------------------------------------------

    def told(self, message: AnyMessage) -> None:
        if isinstance(message, DispatcherReply) and (waiting := self.asked.pop(message.id, None)):
            waiting.set_result(message.answer)

    def ask(self, what: str, name: str = "", task_id: int = 0) -> dict[str, Any]:
        """From a command's thread: ask the dispatcher and wait for its answer."""
        if not self.link.epoch:
            raise NotReachable(what="The dispatcher", reason="it is not there")
        number = next(self.numbers)
        waiting: Future[dict[str, Any]] = Future()
        self.asked[number] = waiting
        self.loop.post(partial(self.link.send, DispatcherRequest(number, what, name, task_id)))
        try:
            return waiting.result(ASK_SECONDS)
        except TimeoutError:
            self.asked.pop(number, None)
            raise NotReachable(what="The dispatcher", reason="it does not answer") from None

    def ring(self, dues: Sequence[DueTask] = ()) -> None:
        self.loop.post(partial(self.link.send, Trigger(tuple(dues))))


def run(settings: Settings) -> None:
    loop = EventLoop()
    database = Database(settings.database, webhooks=settings.webhooks)
    schema.require(database)
    gateway = Gateway(settings, loop, database)
    log.info("The gateway is ready.", action="ready")
    loop.run()
    gateway.web.stop()
    gateway.pool.shutdown(wait=True, cancel_futures=True)
    gateway.link.close()
    gateway.socket.close(linger=500)
    gateway.context.term()
    database.close()
