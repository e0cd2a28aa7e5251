"""The dispatcher: queues due tasks and hands them to free workers. Memory only.

It never touches the database. What it knows it is told by the scanner and by the workers, and
after a restart it is told again; what it gets wrong the keepers' compare-and-set refuses.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import structlog
import zmq

from actors.dispatcher.peer import Peer
from actors.event_loop import EventLoop
from drumline.config import Settings
from drumline.domain.dispatch.bundles import RuntimeEstimates
from drumline.domain.dispatch.ready_queue import ReadyQueue
from drumline.domain.task import DueTask
from drumline.errors import DecodeError
from drumline.telemetry import metrics
from protocol import codec, sockets
from protocol.credit import BundleSender
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
    TasksReleased,
    Trigger,
    Unregister,
)

log = structlog.get_logger()

BEAT_SECONDS = 1.0
EXPIRE_SECONDS = 4.0
RESEND_SECONDS = 2.0
EVERYTHING = "*"
REFILL = 8
"""A full loop gets more when this part of it is free."""


class Dispatcher:
    """One per node."""

    def __init__(self, settings: Settings, loop: EventLoop) -> None:
        self.loop = loop
        self.epoch = time.time_ns()
        self.queue = ReadyQueue(settings.queue_capacity)
        self.means = RuntimeEstimates(settings.bundle_budget, settings.bundle_max)
        self.depth = settings.bundles_per_worker
        self.peers: dict[bytes, Peer] = {}
        self.watch: SilenceDetector[bytes] = SilenceDetector(
            EXPIRE_SECONDS, longest_gap=2 * BEAT_SECONDS
        )
        self.assigned: dict[int, tuple[bytes, str]] = {}
        self.paused: tuple[str, ...] = ()
        self.sweep_cap = 0
        self.parts: set[int] = set()
        """Partitions of sweeps that workers here have."""
        self.left: list[int] = []
        self.finished = 0
        self.room_told = -1
        self.context = sockets.context()
        self.socket = sockets.bound_router(self.context, settings.endpoint("dispatcher"))
        loop.add_reader(self.socket, self.readable)
        loop.call_every(BEAT_SECONDS / 4, self.tick)

    # --- in and out ----------------------------------------------------------------------------

    def readable(self) -> None:
        while True:
            try:
                identity, *frames = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                break
            try:
                message = codec.decode(frames[0] if len(frames) == 1 else b"")
            except DecodeError as error:
                metrics.bad_frames.inc()
                log.warning("A message could not be read.", action="bad_frame", error=str(error))
                continue
            self.receive(identity, message)
        self.pump()

    def send(self, identity: bytes, message: Message) -> bool:
        """Accepted is not delivered; refused is certainly gone or too slow."""
        try:
            self.socket.send_multipart([identity, codec.encode(message)], zmq.DONTWAIT)
            return True
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False

    def receive(self, identity: bytes, message: AnyMessage) -> None:
        peer = self.peers.get(identity)
        if isinstance(message, Register):
            self.welcome(identity, message)
            return
        if peer is None:
            self.send(identity, RegisterAgain())
            return
        self.watch.heard(identity, self.loop.now())
        match message:
            case Heartbeat():
                self.beat(identity, peer, message)
            case TasksReleased():
                self.done(identity, peer, message)
            case Feed():
                self.fed(message)
            case Trigger():
                if not self.took(message.dues):
                    self.ring(identity)
            case DispatcherRequest():
                self.send(identity, DispatcherReply(message.id, self.answer(message)))
            case Unregister():
                self.lose(identity, "left")
            case _:
                log.warning("An unexpected message was ignored.", action="unexpected_message",
                            message=type(message).__name__, peer=peer.hello.name)  # fmt: skip

    # --- peers ---------------------------------------------------------------------------------

    def welcome(self, identity: bytes, hello: Register) -> None:
        """Newest incarnation wins: whoever had the name before is gone."""
        if identity not in self.peers:
            for other, peer in list(self.peers.items()):
                if (peer.hello.kind, peer.hello.name) == (hello.kind, hello.name):
                    self.lose(other, "replaced")
            self.peers[identity] = Peer(
                hello,
                free_since=self.loop.now(),
                outbox=BundleSender(hello.held),
                asynchronous=frozenset(t.key for t in hello.types if t.is_async),
                synchronous=frozenset(t.key for t in hello.types if not t.is_async),
                sweeps=frozenset(t.key for t in hello.types if t.is_sweep),
            )
            self.parts.update(hello.parts)
            for task_id in hello.held:
                self.assigned[task_id] = (identity, "")
            log.info("A peer is here.", action="peer_joined", peer=hello.name, kind=hello.kind,
                     held=len(hello.held))  # fmt: skip
        self.watch.heard(identity, self.loop.now())
        self.send(identity, Registered(self.epoch, BEAT_SECONDS, EXPIRE_SECONDS))
        if hello.kind == "scanner":
            self.room_told = -1

    def lose(self, identity: bytes, why: str) -> None:
        """A peer is gone. What it had is not ours to judge: the scan will find it again."""
        peer = self.peers.pop(identity, None)
        self.watch.forget(identity)
        if peer is None:
            return
        for task_id in peer.outbox.held:
            self.drop(task_id)
        log.info("A peer is gone.", action="peer_left", peer=peer.hello.name, why=why,
                 held=len(peer.outbox.held))  # fmt: skip

    def drop(self, task_id: int) -> None:
        self.assigned.pop(task_id, None)
        self.parts.discard(task_id)
        self.left.append(task_id)

    def beat(self, identity: bytes, peer: Peer, message: Heartbeat) -> None:
        self.send(identity, Heartbeat())
        if peer.hello.kind != "worker":
            return
        for task_id in peer.outbox.reconcile(message.received, message.held):
            self.drop(task_id)
        now = self.loop.now()
        peer.kill_at = {(r.task_id, r.fence): now + r.seconds_left for r in message.running}

    def done(self, identity: bytes, peer: Peer, message: TasksReleased) -> None:
        peer.outbox.confirm(message.received)
        for task_id in peer.outbox.done(message.task_ids):
            self.drop(task_id)
        self.finished += message.finished
        for timing in message.timings:
            self.means.record_runs(timing.key, timing.runs, timing.seconds)
        if not peer.outbox.held:
            peer.free_since = self.loop.now()

    def workers(self) -> list[tuple[bytes, Peer]]:
        return [(i, p) for i, p in self.peers.items() if p.hello.kind == "worker"]

    # --- work ----------------------------------------------------------------------------------

    def fed(self, feed: Feed) -> None:
        self.paused, self.sweep_cap = feed.paused, feed.sweep_cap
        if self.paused:
            dropped = self.queue.remove_handlers(
                [k for k in self.queue.count_by_handler() if self.is_paused(k)]
            )
            self.left += dropped
        self.enter(feed.dues)
        self.room_told = -1

    def took(self, dues: Sequence[DueTask]) -> bool:
        """Take new tasks without a scan, if nobody waits who may have to start before them."""
        if not dues or len(self.queue) or any(self.is_paused(due.key) for due in dues):
            return False
        self.enter(dues)
        return True

    def enter(self, dues: Sequence[DueTask]) -> None:
        for due in dues:
            if due.id in self.queue or due.id in self.assigned:
                metrics.duplicates.inc()
            elif self.is_paused(due.key) or not self.queue.add(due):
                self.left.append(due.id)
                metrics.refused.inc()

    def is_paused(self, key: str) -> bool:
        return EVERYTHING in self.paused or key.partition("/")[2] in self.paused

    def pump(self) -> None:
        """Hand out what can be handed out, to whoever has been free longest, then ask for more."""
        if len(self.queue):
            ready = [(i, p) for i, p in self.workers() if not p.draining]
            ready.sort(key=lambda item: (len(item[1].outbox.held) > 0, item[1].free_since))
            for identity, peer in ready:
                self.fill(identity, peer)
        self.tell_room()

    def fill(self, identity: bytes, peer: Peer) -> None:
        """Send a worker what it has credit for."""
        held = [self.assigned[i][1] for i in peer.outbox.held if i in self.assigned]
        slots = peer.hello.async_slots
        free = slots - sum(key in peer.asynchronous for key in held)
        # A full loop is refilled by the handful, not one by one as its tasks end: a bundle is a
        # transaction. Nobody waits for that who could start now.
        if free > 0 and (free >= len(self.queue) or free >= slots // REFILL):
            self.give(identity, peer, peer.asynchronous, min(free, self.means.max_tasks))
        mine = [key for key in held if key not in peer.asynchronous]
        # A worker that is busy with quick work gets the next bundle ahead, so that it never
        # waits for one; behind slow or unknown work nothing is queued.
        ahead = sum(self.means.expected_seconds(key) for key in mine)
        if not mine and len(self.parts) < self.sweep_cap:
            self.give(identity, peer, peer.synchronous, None)
        elif not mine or (
            self.depth > 1
            and ahead < self.means.budget * (self.depth - 1)
            and peer.sweeps.isdisjoint(mine)
        ):
            self.give(identity, peer, peer.synchronous - peer.sweeps, None)

    def give(self, identity: bytes, peer: Peer, keys: frozenset[str], most: int | None) -> None:
        """Cut a bundle: in order of urgency, until it holds enough work."""
        dues: list[DueTask] = []
        work = 0.0
        while (due := self.queue.most_urgent(keys)) is not None:
            seconds = self.means.expected_seconds(due.key)
            if most is None:
                size = self.means.bundle_size(due.key)
                if dues and (len(dues) >= size or work + seconds > self.means.budget):
                    break
                if due.key in peer.sweeps:
                    if not dues:
                        dues.append(self.queue.pop(due.key))
                        self.parts.add(due.id)
                    break  # a partition comes alone: nothing is to wait behind it
            elif len(dues) >= most:
                break
            dues.append(self.queue.pop(due.key))
            work += seconds
        if not dues:
            return
        ids = [due.id for due in dues]
        now = self.loop.now()
        bundle = Bundle(peer.outbox.send(ids, now), tuple(dues))
        peer.outbox.keep(bundle.number, ids, bundle, now)
        for due in dues:
            self.assigned[due.id] = (identity, due.key)
        metrics.bundle_size.observe(len(dues))
        if not self.send(identity, bundle):
            self.lose(identity, "unreachable")

    def tell_room(self) -> None:
        """Ask the scanner for more when a good part of the queue is free."""
        room = self.queue.room
        enough = room >= self.queue.capacity // 4 or not len(self.queue)
        if self.room_told == -1 or (enough and (room != self.room_told or self.left)):
            scanner = next((i for i, p in self.peers.items() if p.hello.kind == "scanner"), None)
            if scanner is None:
                self.left.clear()  # a new scanner knows of none of them
                return
            message = FeedRequest(
                self.epoch, room, tuple(self.left), len(self.queue), self.finished
            )
            if self.send(scanner, message):
                self.room_told = room
                self.left = []

    def ring(self, sender: bytes) -> None:
        """Pass a trigger on to those who look for work."""
        for identity, peer in self.peers.items():
            if peer.hello.kind in ("scanner", "ticker") and identity != sender:
                self.send(identity, Trigger())

    # --- time ----------------------------------------------------------------------------------

    def tick(self) -> None:
        now = self.loop.now()
        for identity in self.watch.look(now):
            self.lose(identity, "silent")
        for identity, peer in self.workers():
            for bundle in peer.outbox.overdue(now, RESEND_SECONDS):
                self.send(identity, bundle)
            for run, at in list(peer.kill_at.items()):
                if at <= now:
                    del peer.kill_at[run]
                    metrics.kills_sent.inc()
                    self.send(identity, Kill(*run, reason="timeout"))
        metrics.queue_length.set(len(self.queue))
        metrics.queue_capacity.set(self.queue.capacity)
        busy = sum(bool(p.outbox.held) for _, p in self.workers())
        metrics.workers.labels("busy").set(busy)
        metrics.workers.labels("free").set(len(self.workers()) - busy)
        self.pump()

    # --- questions -----------------------------------------------------------------------------

    def answer(self, ask: DispatcherRequest) -> dict[str, Any]:
        match ask.what:
            case "queue":
                return self.describe()
            case "workers":
                return {"workers": [p.describe() for _, p in self.workers()]}
            case "drain":
                return self.drain(ask.name)
            case "kill":
                return self.kill(ask.task_id)
            case "recycle":
                return self.recycle()
            case _:
                return {"error": f"unknown question {ask.what!r}"}

    def describe(self) -> dict[str, Any]:
        workers = self.workers()
        return {
            "length": len(self.queue),
            "capacity": self.queue.capacity,
            "by_type": self.queue.count_by_handler(),
            "assigned": len(self.assigned),
            "pool_size": len(workers),
            "free_workers": sum(not p.outbox.held for _, p in workers),
            "paused": list(self.paused),
            "finished": self.finished,
            "sweeps": len(self.parts),
            "sweep_cap": self.sweep_cap,
        }

    def drain(self, name: str) -> dict[str, Any]:
        for identity, peer in self.workers():
            if peer.hello.name == name:
                peer.draining = True
                self.send(identity, Drain())
                return {"worker": name, "state": "draining"}
        return {"missing": name}

    def kill(self, task_id: int) -> dict[str, Any]:
        identity, _ = self.assigned.get(task_id, (None, ""))
        if identity is not None:
            self.send(identity, Kill(task_id, 0, reason="cancelled"))
        return {"task_id": task_id, "sent": identity is not None}

    def recycle(self) -> dict[str, Any]:
        """Replace every worker: each finishes what runs, gives back the rest and starts anew."""
        names = [peer.hello.name for _, peer in self.workers()]
        for name in names:
            self.drain(name)
        return {"workers": names}


def run(settings: Settings) -> None:
    loop = EventLoop()
    dispatcher = Dispatcher(settings, loop)
    log.info("The dispatcher is ready.", action="ready", pid=os.getpid())
    loop.on_signal(signal.SIGTERM, loop.stop)
    loop.run()
    dispatcher.socket.close(linger=500)
    dispatcher.context.term()
