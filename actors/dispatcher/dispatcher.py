"""The dispatcher: queues due tasks and sends them to free workers, in memory only.

It never touches the database. The scanner and the workers tell it everything it knows, and tell
it again after a restart. The keepers' compare-and-set corrects whatever it gets wrong.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import structlog
import zmq

from actors.dispatcher.peer import Peer
from actors.event_loop import EventLoop
from drumline.config import Settings
from drumline.domain.dispatch.bundles import RuntimeEstimates, cut_bundle
from drumline.domain.dispatch.ready_queue import ReadyQueue
from drumline.domain.dispatch.status import QueueStatus
from drumline.domain.task import DueTask
from drumline.errors import DecodeError
from drumline.telemetry import metrics
from protocol import codec, sockets
from protocol.liveness import SilenceDetector
from protocol.messages import (
    AnyMessage,
    Bundle,
    DispatcherReply,
    DispatcherRequest,
    Drain,
    Feed,
    FeedRequest,
    Heartbeat,
    Kill,
    Message,
    Register,
    RegisterAgain,
    Registered,
    RequestKind,
    TasksReleased,
    Trigger,
    Unregister,
)

log = structlog.get_logger()

HEARTBEAT_SECONDS = 1.0
EXPIRE_SECONDS = 4.0
RESEND_SECONDS = 2.0
ALL_TYPES = "*"
REFILL = 8
"""An async worker without free slots gets more tasks when one slot in this many is free."""


class Dispatcher:
    """One per node."""

    def __init__(self, settings: Settings, loop: EventLoop) -> None:
        self.loop = loop
        self.epoch = time.time_ns()
        self.queue = ReadyQueue(settings.queue_capacity)
        self.estimates = RuntimeEstimates(settings.bundle_budget, settings.bundle_max)
        self.bundles_per_worker = settings.bundles_per_worker
        self.peers: dict[bytes, Peer] = {}
        self.silence: SilenceDetector[bytes] = SilenceDetector(
            EXPIRE_SECONDS, longest_gap=2 * HEARTBEAT_SECONDS
        )
        self.assigned: dict[int, tuple[bytes, str]] = {}
        """The worker and the handler key of each task that a worker holds."""
        self.paused: tuple[str, ...] = ()
        self.partition_limit = 0
        self.partitions: set[int] = set()
        """Partitions of sweeps that workers of this node hold."""
        self.removed: list[int] = []
        """Fed tasks that left since the last FeedRequest."""
        self.finished = 0
        self.requested_room: int | None = None
        """The room of the last FeedRequest; None: send one in any case."""
        self.context = sockets.context()
        self.socket = sockets.bound_router(self.context, settings.endpoint("dispatcher"))
        loop.add_reader(self.socket, self.receive_messages)
        loop.call_every(HEARTBEAT_SECONDS / 4, self.check_deadlines)

    # --- messages ------------------------------------------------------------------------------

    def receive_messages(self) -> None:
        while True:
            try:
                identity, *frames = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                break
            try:
                message = codec.decode(frames[0] if len(frames) == 1 else b"")
            except DecodeError as error:
                metrics.bad_frames.inc()
                log.warning("Invalid message ignored", action="bad_frame", error=str(error))
                continue
            self.handle_message(identity, message)
        self.dispatch()

    def send(self, identity: bytes, message: Message) -> bool:
        """False: the peer is gone or its queue is full. True does not mean delivered."""
        try:
            self.socket.send_multipart([identity, codec.encode(message)], zmq.DONTWAIT)
            return True
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False

    def handle_message(self, identity: bytes, message: AnyMessage) -> None:
        peer = self.peers.get(identity)
        if isinstance(message, Register):
            self.register_peer(identity, message)
            return
        if peer is None:
            self.send(identity, RegisterAgain())
            return
        self.silence.record_message(identity, self.loop.now())
        match message:
            case Heartbeat():
                self.handle_heartbeat(identity, peer, message)
            case TasksReleased():
                self.handle_released(peer, message)
            case Feed():
                self.handle_feed(message)
            case Trigger():
                if not self.queue_without_scan(message.tasks):
                    self.forward_trigger(identity)
            case DispatcherRequest():
                self.send(identity, self.answer(message))
            case Unregister():
                self.remove_peer(identity, "unregistered")
            case _:
                log.warning("Unexpected message ignored", action="unexpected_message",
                            message=type(message).__name__,
                            peer=peer.registration.name)  # fmt: skip

    # --- peers ---------------------------------------------------------------------------------

    def register_peer(self, identity: bytes, registration: Register) -> None:
        """Register a peer. It replaces a peer of the same kind and name."""
        kind, name = registration.kind, registration.name
        if identity not in self.peers:
            for other, peer in list(self.peers.items()):
                if (peer.registration.kind, peer.registration.name) == (kind, name):
                    self.remove_peer(other, "replaced")
            self.peers[identity] = Peer.registered(registration, self.loop.now())
            self.partitions.update(registration.held_partitions)
            for task_id in registration.held:
                self.assigned[task_id] = (identity, "")
            log.info("Peer connected", action="peer_connected", peer=name, kind=kind,
                     held=len(registration.held))  # fmt: skip
        self.silence.record_message(identity, self.loop.now())
        self.send(identity, Registered(self.epoch, HEARTBEAT_SECONDS, EXPIRE_SECONDS))
        if kind == "scanner":
            self.requested_room = None

    def remove_peer(self, identity: bytes, reason: str) -> None:
        """Remove a peer. The scanner reads in the database what becomes of its tasks."""
        peer = self.peers.pop(identity, None)
        self.silence.forget(identity)
        if peer is None:
            return
        for task_id in peer.bundles.held:
            self.remove_task(task_id)
        log.info("Peer disconnected", action="peer_disconnected", peer=peer.registration.name,
                 reason=reason, held=len(peer.bundles.held))  # fmt: skip

    def remove_task(self, task_id: int) -> None:
        """A task is no longer held by a worker of this node."""
        self.assigned.pop(task_id, None)
        self.partitions.discard(task_id)
        self.removed.append(task_id)

    def handle_heartbeat(self, identity: bytes, peer: Peer, message: Heartbeat) -> None:
        self.send(identity, Heartbeat())
        if peer.registration.kind != "worker":
            return
        for task_id in peer.bundles.reconcile(message.received, message.held):
            self.remove_task(task_id)
        now = self.loop.now()
        peer.deadlines = {(r.task_id, r.fence): now + r.seconds_left for r in message.long_runs}

    def handle_released(self, peer: Peer, message: TasksReleased) -> None:
        peer.bundles.confirm(message.received)
        for task_id in peer.bundles.remove(message.task_ids):
            self.remove_task(task_id)
        self.finished += message.finished
        for timing in message.timings:
            self.estimates.record_runs(timing.key, timing.runs, timing.seconds)
        if not peer.bundles.held:
            peer.free_since = self.loop.now()

    def workers(self) -> list[tuple[bytes, Peer]]:
        return [(i, p) for i, p in self.peers.items() if p.registration.kind == "worker"]

    # --- the queue -----------------------------------------------------------------------------

    def handle_feed(self, feed: Feed) -> None:
        self.paused, self.partition_limit = feed.paused, feed.partition_limit
        if self.paused:
            paused_keys = [key for key in self.queue.count_by_handler() if self.is_paused(key)]
            self.removed += self.queue.remove_handlers(paused_keys)
        self.enqueue(feed.tasks)
        self.requested_room = None

    def queue_without_scan(self, tasks: Sequence[DueTask]) -> bool:
        """Queue new tasks that came with a trigger, unless queued tasks may have to start first:
        only a scan knows the order."""
        if not tasks or len(self.queue) or any(self.is_paused(task.key) for task in tasks):
            return False
        self.enqueue(tasks)
        return True

    def enqueue(self, tasks: Sequence[DueTask]) -> None:
        for task in tasks:
            if task.id in self.queue or task.id in self.assigned:
                metrics.duplicates.inc()
            elif self.is_paused(task.key) or not self.queue.add(task):
                self.removed.append(task.id)
                metrics.refused.inc()

    def is_paused(self, key: str) -> bool:
        return ALL_TYPES in self.paused or key.partition("/")[2] in self.paused

    def dispatch(self) -> None:
        """Send tasks to workers, the longest free first, then ask the scanner for more."""
        if len(self.queue):
            ready = [(i, p) for i, p in self.workers() if not p.draining]
            ready.sort(key=lambda item: (len(item[1].bundles.held) > 0, item[1].free_since))
            for identity, peer in ready:
                self.use_credit(identity, peer)
        self.request_feed()

    def use_credit(self, identity: bytes, peer: Peer) -> None:
        """Send a worker as many tasks as it has credit for."""
        held = [self.assigned[i][1] for i in peer.bundles.held if i in self.assigned]
        slots = peer.registration.async_slots
        free = slots - sum(key in peer.async_keys for key in held)
        # A busy async worker is refilled several slots at a time: each bundle is a transaction.
        # No queued task waits for that while it could start.
        if free > 0 and (free >= len(self.queue) or free >= slots // REFILL):
            limit = min(free, self.estimates.max_tasks)
            if not self.send_bundle(identity, peer, peer.async_keys, limit):
                return
        held_sync = [key for key in held if key not in peer.async_keys]
        # A worker that is busy with quick tasks gets its next bundle ahead of time, so that it
        # is never idle; no task is queued behind slow tasks or tasks of unknown runtime.
        ahead = sum(self.estimates.expected_seconds(key) for key in held_sync)
        if not held_sync and len(self.partitions) < self.partition_limit:
            self.send_bundle(identity, peer, peer.sync_keys, None)
        elif not held_sync or (
            self.bundles_per_worker > 1
            and ahead < self.estimates.budget * (self.bundles_per_worker - 1)
            and peer.sweep_keys.isdisjoint(held_sync)
        ):
            self.send_bundle(identity, peer, peer.sync_keys - peer.sweep_keys, None)

    def send_bundle(
        self, identity: bytes, peer: Peer, keys: frozenset[str], limit: int | None
    ) -> bool:
        """Send tasks of these handlers. False: the worker is gone, and so are its tasks here."""
        tasks = cut_bundle(self.queue, keys, self.estimates, peer.sweep_keys, limit)
        if not tasks:
            return True
        if tasks[0].key in peer.sweep_keys:
            self.partitions.add(tasks[0].id)
        ids = [task.id for task in tasks]
        bundle = Bundle(peer.bundles.next_number(ids), tuple(tasks))
        peer.bundles.keep(bundle.number, ids, bundle, self.loop.now())
        for task in tasks:
            self.assigned[task.id] = (identity, task.key)
        metrics.bundle_size.observe(len(tasks))
        if self.send(identity, bundle):
            return True
        self.remove_peer(identity, "unreachable")
        return False

    def request_feed(self) -> None:
        """Ask the scanner for tasks when a quarter of the queue is free or the queue is empty."""
        room = self.queue.room
        enough = room >= self.queue.capacity // 4 or not len(self.queue)
        changed = room != self.requested_room or self.removed
        if self.requested_room is None or (enough and changed):
            scanner = next(
                (i for i, p in self.peers.items() if p.registration.kind == "scanner"), None
            )
            if scanner is None:
                self.removed.clear()  # a new scanner has fed none of these tasks
                return
            message = FeedRequest(
                self.epoch, room, tuple(self.removed), len(self.queue), self.finished
            )
            if self.send(scanner, message):
                self.requested_room = room
                self.removed = []

    def forward_trigger(self, sender: bytes) -> None:
        """Forward a trigger to the scanner and the ticker."""
        for identity, peer in self.peers.items():
            if peer.registration.kind in ("scanner", "ticker") and identity != sender:
                self.send(identity, Trigger())

    # --- deadlines -----------------------------------------------------------------------------

    def check_deadlines(self) -> None:
        """Remove silent peers, send unconfirmed bundles again, kill runs at their deadline."""
        now = self.loop.now()
        for identity in self.silence.silent_peers(now):
            self.remove_peer(identity, "silent")
        for identity, peer in self.workers():
            for bundle in peer.bundles.overdue(now, RESEND_SECONDS):
                self.send(identity, bundle)
            for run, at in list(peer.deadlines.items()):
                if at <= now:
                    del peer.deadlines[run]
                    metrics.kills_sent.inc()
                    self.send(identity, Kill(*run, reason="timeout"))
        metrics.queue_length.set(len(self.queue))
        metrics.queue_capacity.set(self.queue.capacity)
        busy = sum(bool(p.bundles.held) for _, p in self.workers())
        metrics.workers.labels("busy").set(busy)
        metrics.workers.labels("free").set(len(self.workers()) - busy)
        self.dispatch()

    # --- requests ------------------------------------------------------------------------------

    def answer(self, request: DispatcherRequest) -> DispatcherReply:
        match request.kind:
            case RequestKind.QUEUE:
                return DispatcherReply(request.id, queue=self.queue_status())
            case RequestKind.WORKERS:
                workers = tuple(peer.status() for _, peer in self.workers())
                return DispatcherReply(request.id, workers=workers)
            case RequestKind.DRAIN:
                return DispatcherReply(request.id, found=self.drain_worker(request.worker))
            case RequestKind.KILL:
                return DispatcherReply(request.id, found=self.kill_task(request.task_id))
            case RequestKind.RECYCLE:
                return DispatcherReply(request.id, found=self.drain_all_workers())

    def queue_status(self) -> QueueStatus:
        workers = self.workers()
        return QueueStatus(
            length=len(self.queue),
            capacity=self.queue.capacity,
            by_type=self.queue.count_by_handler(),
            assigned=len(self.assigned),
            pool_size=len(workers),
            free_workers=sum(not p.bundles.held for _, p in workers),
            paused=self.paused,
            finished=self.finished,
            partitions=len(self.partitions),
            partition_limit=self.partition_limit,
        )

    def drain_worker(self, name: str) -> bool:
        """Drain a worker: it finishes what runs, gives back the rest, and is started anew."""
        for identity, peer in self.workers():
            if peer.registration.name == name:
                peer.draining = True
                self.send(identity, Drain())
                return True
        return False

    def kill_task(self, task_id: int) -> bool:
        """Have a run killed, if a worker of this node holds the task."""
        identity, _ = self.assigned.get(task_id, (None, ""))
        if identity is None:
            return False
        self.send(identity, Kill(task_id, 0, reason="cancelled"))
        return True

    def drain_all_workers(self) -> bool:
        names = [peer.registration.name for _, peer in self.workers()]
        for name in names:
            self.drain_worker(name)
        return bool(names)


def run(settings: Settings) -> None:
    loop = EventLoop()
    dispatcher = Dispatcher(settings, loop)
    log.info("Dispatcher ready", action="ready", pid=os.getpid())
    loop.on_signal(signal.SIGTERM, loop.stop)
    loop.run()
    dispatcher.socket.close(linger=500)
    dispatcher.context.term()
