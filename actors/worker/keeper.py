"""The keeper: a worker's half that acquires, beats, and releases. It runs no user code.

The database is reached through a thread of its own, the user's code runs in a process of its
own, so nothing that either of them does can keep this loop from beating, killing and draining.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial

import structlog

from actors.dispatcher_connection import DispatcherConnection
from actors.event_loop import EventLoop, Timer
from actors.worker.database_thread import DatabaseThread
from actors.worker.held_tasks import HeldTasks
from actors.worker.runner_supervisor import RunnerSupervisor
from drumline.config import Settings
from drumline.domain.release import RunEnd
from drumline.domain.states import KeeperState
from drumline.domain.task import DueTask
from drumline.runner import frames
from drumline.store import schema
from drumline.store.database import Database
from drumline.store.job import callbacks
from drumline.store.node import handlers, keepers
from drumline.store.node.keepers import KeeperDead
from drumline.store.task import holdings
from drumline.store.tx import Tx
from drumline.system import processes
from drumline.telemetry import metrics
from protocol.credit import BundleReceiver
from protocol.messages import (
    AnyMessage,
    Bundle,
    Drain,
    HandlerSummary,
    Heartbeat,
    Kill,
    Register,
    TasksReleased,
    Timing,
)

log = structlog.get_logger()

LEAVE_SECONDS = 0.05
CRASH_SECONDS = 1.0
STRAYS_EVERY = 5
"""Every so many beats the keeper compares what it owns in the database with what it holds."""


class Keeper:
    """One incarnation after the other, until it is drained."""

    def __init__(self, settings: Settings, name: str, loop: EventLoop, database: Database) -> None:
        self.settings = settings
        self.name = name
        self.loop = loop
        self.database = database
        self.thread = DatabaseThread(loop)
        self.ledger = HeldTasks(
            settings, name, loop, database, self.thread,
            self.tell_done, self.acquired, self.not_acquired,
        )  # fmt: skip
        self.bench = RunnerSupervisor(settings, loop, self.ledger, self.runner_ready)
        self.link: DispatcherConnection | None = None
        self.inbox = BundleReceiver()
        self.alone = True
        self.beat_sent = loop.now()
        self.beats = 0
        self.strays: set[int] = set()
        self.draining = False
        self.leaving: Timer | None = None
        loop.on_signal(signal.SIGTERM, self.drain)
        loop.on_signal(signal.SIGCHLD, self.bench.child_died)
        loop.call_every(settings.heartbeat_interval, self.beat)
        self.register()

    @property
    def id(self) -> int:
        """The incarnation's id; 0 while there is none."""
        return self.ledger.keeper_id

    # --- birth -----------------------------------------------------------------------------------

    def register(self) -> None:
        """Become a new incarnation, with a new runner."""

        def work() -> int:
            schema.require(self.database)
            self.ledger.callback_key = callbacks.secret_key(self.database)
            return self.database.write(
                partial(
                    keepers.register,
                    name=self.name,
                    region=self.settings.region,
                    node=self.settings.node_name,
                    pid=os.getpid(),
                    pid_started=processes.start_ticks(os.getpid()) or 0,
                )
            )

        self.thread.submit(work, self.registered, self.crash)

    def registered(self, keeper_id: int) -> None:
        self.ledger.keeper_id = keeper_id
        self.beat_sent = self.loop.now()
        structlog.contextvars.bind_contextvars(keeper=keeper_id)
        log.info("The keeper is registered.", action="registered")
        self.bench.start()

    def runner_ready(self, frame: frames.RunnerReady) -> None:
        """The runner has imported the handlers: announce them, then offer to work."""
        if self.link is not None:
            return
        region = self.settings.region
        self.thread.submit(
            lambda: self.database.write(lambda tx: handlers.announce(tx, region, frame.manifest)),
            lambda _: self.connect(),
            self.crash,
        )

    def connect(self) -> None:
        self.link = DispatcherConnection(
            self.loop,
            self.settings.endpoint("dispatcher"),
            registration=self.hello,
            receive=self.receive,
            heartbeat=self.link_beat,
            on_registered=self.connected,
        )
        log.info("The worker is ready.", action="ready", handlers=len(self.ledger.manifest))

    def crash(self, error: Exception) -> None:
        """Nothing can be done without this: end, and let the supervisor start us again."""
        log.error("The worker cannot start.", action="start_failed", error=str(error))
        self.loop.call_later(CRASH_SECONDS, self.loop.stop)

    # --- the dispatcher --------------------------------------------------------------------------

    def hello(self) -> Register:
        manifest = () if self.draining else self.ledger.manifest.items()
        return Register(
            kind="worker",
            name=self.name,
            pid=os.getpid(),
            keeper_id=self.id,
            handlers=tuple(
                HandlerSummary(key, spec.is_async, spec.sweep is not None) for key, spec in manifest
            ),
            async_slots=self.settings.async_slots,
            held=self.ledger.held_ids(),
            held_partitions=self.ledger.held_parts(),
        )

    def connected(self) -> None:
        self.inbox = BundleReceiver()

    def link_beat(self) -> Heartbeat:
        return Heartbeat(self.inbox.received, self.ledger.held_ids(), tuple(self.bench.long_runs()))

    def tell_done(self, ids: Sequence[int], finished: int, timings: Sequence[Timing]) -> None:
        if self.link is not None:
            self.link.send(TasksReleased(self.inbox.received, tuple(ids), finished, tuple(timings)))

    def receive(self, message: AnyMessage) -> None:
        match message:
            case Bundle():
                self.bundle(message)
            case Kill():
                self.kill(message)
            case Drain():
                self.drain()
            case _:
                log.warning(
                    "An unexpected message was ignored.",
                    action="unexpected_message",
                    message=type(message).__name__,
                )

    def bundle(self, message: Bundle) -> None:
        if self.inbox.accept(message.number) and not self.draining and self.id:
            # What we hold already may come again from a dispatcher that did not know it: to acquire
            # would find it ours, as after a commit whose answer got lost, and start it twice.
            held = set(self.ledger.held_ids())
            fresh = [due for due in message.tasks if due.id not in held]
            dues = [due for due in fresh if due.key in self.ledger.manifest]
            self.ledger.acquire(dues)

    def acquired(self, won: Sequence[DueTask]) -> None:
        if self.draining:
            self.ledger.give_back([due.id for due in won])
        else:
            self.bench.hand(won)

    def not_acquired(self, error: Exception) -> None:
        if isinstance(error, KeeperDead):
            self.reborn()
        else:
            log.error("A bundle could not be acquired.", action="acquire_failed", error=str(error))

    def kill(self, message: Kill) -> None:
        hold = self.ledger.holds.get(message.task_id)
        if hold is not None and message.fence in (0, hold.due.fence):
            end = RunEnd.TIMEOUT if message.reason == "timeout" else RunEnd.KILLED
            self.bench.stop(message.task_id, end)

    # --- the lease -------------------------------------------------------------------------------

    def beat(self) -> None:
        """Raise our counter, and hear what is to be stopped."""
        if not self.id:
            return
        if not self.alone and self.loop.now() - self.beat_sent > self.settings.lease:
            self.lapse()
        if self.thread.waiting > 2:
            return  # it is behind; another beat would only wait there too
        sent, keeper_id, region = self.loop.now(), self.id, self.settings.region
        self.beats += 1
        look = self.beats % STRAYS_EVERY == 0

        def work(tx: Tx) -> tuple[list[tuple[int, int]], bool, set[int]]:
            keepers.touch(tx, keeper_id)
            stops = holdings.to_be_stopped(tx, region, keeper_id)
            alone = self.database.dialect.alone or not keepers.others_alive(
                tx, region, self.settings.node_name
            )
            held = {row.id for row in holdings.of(tx, region, keeper_id)} if look else set()
            return stops, alone, held

        self.thread.submit(
            lambda: self.database.write(work),
            lambda news: self.beaten(sent, *news),
            self.beat_failed,
        )

    def beaten(
        self, sent: float, stops: list[tuple[int, int]], alone: bool, held: set[int]
    ) -> None:
        metrics.heartbeats.inc()
        self.beat_sent = sent
        self.alone = alone
        for task_id, fence in stops:
            hold = self.ledger.holds.get(task_id)
            if hold is not None and hold.due.fence == fence:
                self.bench.stop(task_id, RunEnd.KILLED)
        if held:
            self.return_strays(held)

    def beat_failed(self, error: Exception) -> None:
        if isinstance(error, KeeperDead):
            self.reborn()
        else:
            log.error("A heartbeat failed.", action="beat_failed", error=str(error))

    def return_strays(self, held: set[int]) -> None:
        """Give back what is ours in the database and, twice in a row, not in our hands."""
        strays = held.difference(self.ledger.held_ids())
        lost, self.strays = strays & self.strays, strays
        if not lost:
            return
        log.error(
            "Tasks were found that this keeper had lost track of.",
            action="strays",
            task_ids=sorted(lost),
        )
        keeper_id, limits = self.id, self.ledger.limits
        self.thread.submit(
            lambda: holdings.give_back(
                self.database, self.settings.region, keeper_id, limits, only=lost
            ),
            lambda _: None,
            self.beat_failed,
        )

    def lapse(self) -> None:
        """Our lease is about to run out and another node may take over: stop before it does."""
        if self.ledger.holds:
            log.error("The lease is running out; the run is stopped.", action="lease_lapsed")
            self.bench.abandon()

    def reborn(self) -> None:
        """We were declared dead: drop everything, it belongs to others, and begin anew."""
        if not self.id:
            return
        log.error("This keeper was declared dead; it begins anew.", action="declared_dead")
        metrics.fenced.inc(self.ledger.clear())
        self.bench.end()
        self.ledger.keeper_id = 0
        if self.link is not None:
            self.link.register_again()
        self.register()

    # --- the end ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Finish what runs, give back the rest, say goodbye."""
        if self.draining:
            return
        self.draining = True
        self.bench.closing = True
        log.info("Draining.", action="drain", running=len(self.ledger.holds))
        self.bench.take_back_all()
        self.loop.call_later(self.settings.drain_seconds, self.bench.abandon)
        self.leaving = self.loop.call_every(LEAVE_SECONDS, self.leave_if_empty)

    def leave_if_empty(self) -> None:
        if not self.ledger.is_empty() or self.thread.waiting:
            return
        if self.leaving is not None:
            self.leaving.cancel()
        keeper_id = self.id
        self.thread.submit(
            lambda: self.database.write(lambda tx: keepers.close(tx, keeper_id, KeeperState.GONE)),
            self.leave,
            self.leave,
        )

    def leave(self, _: object) -> None:
        self.ledger.keeper_id = 0
        self.bench.end()
        if self.link is not None:
            self.link.close()
        log.info("Gone.", action="gone")
        self.loop.stop()


def run(settings: Settings, name: str) -> None:
    loop = EventLoop()
    Keeper(settings, name, loop, Database(settings.database, webhooks=settings.webhooks))
    loop.run()
