"""The gateway: serves the control socket and REST, and executes the commands that arrive there."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count

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
from drumline.domain.dispatch.status import QueueStatus, WorkerStatus
from drumline.domain.task import DueTask
from drumline.errors import DecodeError, DrumlineError, NotReachable
from drumline.store import schema
from drumline.store.database import Database
from drumline.telemetry import metrics
from protocol import sockets
from protocol.messages import (
    AnyMessage,
    DispatcherReply,
    DispatcherRequest,
    Register,
    RequestKind,
    Trigger,
)

log = structlog.get_logger()

THREADS = 4
REPLY_SECONDS = 3.0


class RequestSender:
    """Sends requests to the dispatcher for commands, which run in threads of the pool."""

    def __init__(self, settings: Settings, loop: EventLoop) -> None:
        self.loop = loop
        self.connection = DispatcherConnection(
            loop,
            settings.endpoint("dispatcher"),
            registration=lambda: Register("gateway", "gateway", os.getpid()),
            receive=self.receive,
        )
        self._ids = count(1)
        self._pending: dict[int, Future[DispatcherReply]] = {}

    def receive(self, message: AnyMessage) -> None:
        if isinstance(message, DispatcherReply) and (future := self._pending.pop(message.id, None)):
            future.set_result(message)

    def queue_status(self) -> QueueStatus:
        reply = self._request(RequestKind.QUEUE)
        if reply.queue is None:
            raise NotReachable(what="The dispatcher", reason="its reply has no queue status")
        return reply.queue

    def worker_statuses(self) -> tuple[WorkerStatus, ...]:
        return self._request(RequestKind.WORKERS).workers

    def drain_worker(self, name: str) -> bool:
        return self._request(RequestKind.DRAIN, worker=name).found

    def kill_task(self, task_id: int) -> bool:
        return self._request(RequestKind.KILL, task_id=task_id).found

    def trigger(self, tasks: Sequence[DueTask] = ()) -> None:
        self.loop.post(partial(self.connection.send, Trigger(tuple(tasks))))

    def _request(self, kind: RequestKind, worker: str = "", task_id: int = 0) -> DispatcherReply:
        """Send a request and wait for the reply. Called in a command's thread."""
        if not self.connection.epoch:
            raise NotReachable(what="The dispatcher", reason="it is not connected")
        request = DispatcherRequest(next(self._ids), kind, worker, task_id)
        future: Future[DispatcherReply] = Future()
        self._pending[request.id] = future
        self.loop.post(partial(self.connection.send, request))
        try:
            return future.result(REPLY_SECONDS)
        except TimeoutError:
            self._pending.pop(request.id, None)
            raise NotReachable(what="The dispatcher", reason="it does not answer") from None


class Gateway:
    """One per node."""

    def __init__(self, settings: Settings, loop: EventLoop, database: Database) -> None:
        self.loop = loop
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="command")
        self.dispatcher = RequestSender(settings, loop)
        self.command_context = commands.Context(
            settings, database, self.dispatcher, self.dispatcher.trigger
        )
        self.context = sockets.context()
        self.socket = sockets.bound_router(self.context, settings.endpoint("control"))
        loop.add_reader(self.socket, self.receive_requests)
        self.web = WebServer(settings, self.command_context, on_failure=loop.stop)
        loop.on_signal(signal.SIGTERM, loop.stop)

    def receive_requests(self) -> None:
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
            future = self.pool.submit(self.execute, request)
            future.add_done_callback(partial(self.post_reply, identity))

    def execute(self, request: ControlRequest) -> ControlReply:
        """Execute a command, in a thread of the pool."""
        context = replace(self.command_context, actor=request.actor)
        try:
            kind = commands.by_name(request.command)
            return ControlReply(
                request.id, data=execute.execute(kind, request.arguments, request.id, context)
            )
        except DrumlineError as error:
            return error_reply(request.id, error)

    def post_reply(self, identity: bytes, future: Future[ControlReply]) -> None:
        self.loop.post(partial(self.send, identity, future.result()))

    def send(self, identity: bytes, reply: ControlReply) -> None:
        try:
            self.socket.send_multipart([identity, encode(reply)], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            # The client may ask again with the same request id.
            log.info("Client disconnected before the response was sent", action="reply_dropped",
                     error=str(error))  # fmt: skip


def run(settings: Settings) -> None:
    loop = EventLoop()
    database = Database(settings.database, webhooks=settings.webhooks)
    schema.require(database)
    gateway = Gateway(settings, loop, database)
    log.info("Gateway ready", action="ready")
    loop.run()
    gateway.web.stop()
    gateway.pool.shutdown(wait=True, cancel_futures=True)
    gateway.dispatcher.connection.close()
    gateway.socket.close(linger=500)
    gateway.context.term()
    database.close()
