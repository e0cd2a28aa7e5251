"""The keeper: the worker's main process, which acquires tasks, sends heartbeats, and releases.

Database work runs in a thread and user code in the runner process, so neither can keep this loop
from heartbeats, kills and draining.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

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
from drumline.store.task import held_tasks
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
RESTART_SECONDS = 1.0
OWNED_EVERY = 5
"""One heartbeat in this many compares the tasks owned in the database with the held tasks."""


class HeartbeatAnswer(NamedTuple):
    """What the keeper reads in the transaction of its heartbeat."""

    stops: list[tuple[int, int]]
    """The id and fence of each run that an operator wants killed."""
    alone: bool
    """No keeper of another node could take over this keeper's tasks."""
    owned: set[int]
    """The tasks that this keeper owns; empty in most heartbeats."""


class Keeper:
    """One worker: an incarnation after the other, until it is drained."""

    def __init__(self, settings: Settings, name: str, loop: EventLoop, database: Database) -> None:
        self.settings = settings
        self.name = name
        self.loop = loop
        self.database = database
        self.database_thread = DatabaseThread(loop)
        self.held_tasks = HeldTasks(
            settings, name, loop, database, self.database_thread,
            self.report_released, self.tasks_acquired, self.acquire_failed,
        )  # fmt: skip
        self.runner_supervisor = RunnerSupervisor(
            settings, loop, self.held_tasks, self.runner_ready
        )
        self.dispatcher: DispatcherConnection | None = None
        self.bundles = BundleReceiver()
        self.alone = True
        self.last_heartbeat = loop.now()
        """When the last heartbeat was sent that reached the database."""
        self.heartbeats = 0
        self.untracked: set[int] = set()
        """Tasks that were owned in the database and not held, at the last comparison."""
        self.draining = False
        self.leave_timer: Timer | None = None
        loop.on_signal(signal.SIGTERM, self.drain)
        loop.on_signal(signal.SIGCHLD, self.runner_supervisor.reap_children)
        loop.call_every(settings.heartbeat_interval, self.heartbeat)
        self.register()

    @property
    def id(self) -> int:
        """The incarnation's id; 0 while the keeper is not registered."""
        return self.held_tasks.keeper_id

    # --- registration ----------------------------------------------------------------------------

    def register(self) -> None:
        """Insert the row of a new incarnation; it gets a new runner."""

        def work() -> int:
            schema.require(self.database)
            self.held_tasks.callback_key = callbacks.secret_key(self.database)
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

        self.database_thread.submit(work, self.registered, self.start_failed)

    def registered(self, keeper_id: int) -> None:
        self.held_tasks.keeper_id = keeper_id
        self.last_heartbeat = self.loop.now()
        structlog.contextvars.bind_contextvars(keeper=keeper_id)
        log.info("Keeper registered", action="registered")
        self.runner_supervisor.start()

    def runner_ready(self, frame: frames.RunnerReady) -> None:
        """The runner has imported the handlers: store their specs, then connect."""
        if self.dispatcher is not None:
            return
        region = self.settings.region
        self.database_thread.submit(
            lambda: self.database.write(lambda tx: handlers.announce(tx, region, frame.manifest)),
            lambda _: self.connect(),
            self.start_failed,
        )

    def connect(self) -> None:
        self.dispatcher = DispatcherConnection(
            self.loop,
            self.settings.endpoint("dispatcher"),
            registration=self.registration,
            receive=self.receive,
            heartbeat=self.dispatcher_heartbeat,
            on_registered=self.reset_bundles,
        )
        log.info("Worker ready", action="ready", handlers=len(self.held_tasks.manifest))

    def start_failed(self, error: Exception) -> None:
        """End the process; supervisord starts it again."""
        log.error("Worker cannot start", action="start_failed", error=str(error))
        self.loop.call_later(RESTART_SECONDS, self.loop.stop)

    # --- the dispatcher --------------------------------------------------------------------------

    def registration(self) -> Register:
        manifest = () if self.draining else self.held_tasks.manifest.items()
        return Register(
            kind="worker",
            name=self.name,
            pid=os.getpid(),
            keeper_id=self.id,
            handlers=tuple(
                HandlerSummary(key, spec.is_async, spec.sweep is not None) for key, spec in manifest
            ),
            async_slots=self.settings.async_slots,
            held=self.held_tasks.ids(),
            held_partitions=self.held_tasks.partition_ids(),
        )

    def reset_bundles(self) -> None:
        """Registered: the dispatcher numbers its bundles from 1."""
        self.bundles = BundleReceiver()

    def dispatcher_heartbeat(self) -> Heartbeat:
        long_runs = tuple(self.runner_supervisor.long_runs())
        return Heartbeat(self.bundles.received, self.held_tasks.ids(), long_runs)

    def report_released(
        self, task_ids: Sequence[int], finished: int, timings: Sequence[Timing]
    ) -> None:
        if self.dispatcher is not None:
            self.dispatcher.send(
                TasksReleased(self.bundles.received, tuple(task_ids), finished, tuple(timings))
            )

    def receive(self, message: AnyMessage) -> None:
        match message:
            case Bundle():
                self.accept_bundle(message)
            case Kill():
                self.kill(message)
            case Drain():
                self.drain()
            case _:
                log.warning("Unexpected message ignored", action="unexpected_message",
                            message=type(message).__name__)  # fmt: skip

    def accept_bundle(self, bundle: Bundle) -> None:
        if self.bundles.accept(bundle.number) and not self.draining and self.id:
            # A restarted dispatcher may send a task that is held already. Acquiring it would find
            # it owned by this keeper, as after a commit of unknown outcome, and start it twice.
            held = set(self.held_tasks.ids())
            unheld = [task for task in bundle.tasks if task.id not in held]
            manifest = self.held_tasks.manifest
            self.held_tasks.acquire([task for task in unheld if task.key in manifest])

    def tasks_acquired(self, tasks: Sequence[DueTask]) -> None:
        if self.draining:
            self.held_tasks.give_back([task.id for task in tasks])
        else:
            self.runner_supervisor.run_tasks(tasks)

    def acquire_failed(self, error: Exception) -> None:
        if isinstance(error, KeeperDead):
            self.register_again()
        else:
            log.error("Bundle could not be acquired", action="acquire_failed", error=str(error))

    def kill(self, message: Kill) -> None:
        held = self.held_tasks.running.get(message.task_id)
        if held is not None and message.fence in (0, held.task.fence):
            end = RunEnd.TIMEOUT if message.reason == "timeout" else RunEnd.KILLED
            self.runner_supervisor.stop_run(message.task_id, end)

    # --- the lease -------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Raise the keeper's counter, and read in the same transaction what is to be stopped."""
        if not self.id:
            return
        if not self.alone and self.loop.now() - self.last_heartbeat > self.settings.lease:
            self.stop_before_takeover()
        if self.database_thread.waiting > 2:
            return  # another heartbeat would only wait behind those jobs
        sent, keeper_id, region = self.loop.now(), self.id, self.settings.region
        self.heartbeats += 1
        compare = self.heartbeats % OWNED_EVERY == 0

        def work(tx: Tx) -> HeartbeatAnswer:
            keepers.record_heartbeat(tx, keeper_id)
            stops = held_tasks.read_tasks_to_kill(tx, region, keeper_id)
            alone = self.database.dialect.alone or not keepers.count_alive_elsewhere(
                tx, region, self.settings.node_name
            )
            owned = (
                {row.id for row in held_tasks.read_held_tasks(tx, region, keeper_id)}
                if compare
                else set()
            )
            return HeartbeatAnswer(stops, alone, owned)

        self.database_thread.submit(
            lambda: self.database.write(work),
            lambda answer: self.heartbeat_stored(sent, answer),
            self.heartbeat_failed,
        )

    def heartbeat_stored(self, sent: float, answer: HeartbeatAnswer) -> None:
        metrics.heartbeats.inc()
        self.last_heartbeat = sent
        self.alone = answer.alone
        for task_id, fence in answer.stops:
            held = self.held_tasks.running.get(task_id)
            if held is not None and held.task.fence == fence:
                self.runner_supervisor.stop_run(task_id, RunEnd.KILLED)
        if answer.owned:
            self.give_back_untracked(answer.owned)

    def heartbeat_failed(self, error: Exception) -> None:
        if isinstance(error, KeeperDead):
            self.register_again()
        else:
            log.error("Heartbeat failed", action="heartbeat_failed", error=str(error))

    def give_back_untracked(self, owned: set[int]) -> None:
        """Give back tasks that this keeper owns in the database and, at two comparisons in a row,
        does not hold."""
        untracked = owned.difference(self.held_tasks.ids())
        lost, self.untracked = untracked & self.untracked, untracked
        if not lost:
            return
        log.error("Untracked tasks found; giving them back", action="untracked_tasks",
                  task_ids=sorted(lost))  # fmt: skip
        keeper_id, limits = self.id, self.held_tasks.limits
        self.database_thread.submit(
            lambda: held_tasks.give_back(
                self.database, self.settings.region, keeper_id, limits, only=lost
            ),
            lambda _: None,
            self.heartbeat_failed,
        )

    def stop_before_takeover(self) -> None:
        """The lease is about to expire: stop the runs before another node takes over the tasks."""
        if self.held_tasks.running:
            log.error("Lease expiring; stopping all runs", action="lease_expiring")
            self.runner_supervisor.kill_and_give_back()

    def register_again(self) -> None:
        """This keeper was declared dead: drop its tasks, which belong to others now, and begin a
        new incarnation."""
        if not self.id:
            return
        log.error("Keeper was declared dead; registering again", action="declared_dead")
        metrics.fenced.inc(self.held_tasks.clear())
        self.runner_supervisor.end()
        self.held_tasks.keeper_id = 0
        if self.dispatcher is not None:
            # A new routing id: the dispatcher forgets what the old incarnation held.
            self.dispatcher.reconnect()
        self.register()

    # --- draining --------------------------------------------------------------------------------

    def drain(self) -> None:
        """Finish the tasks that run, give back the others, and end."""
        if self.draining:
            return
        self.draining = True
        self.runner_supervisor.closing = True
        log.info("Draining", action="drain", running=len(self.held_tasks.running))
        self.runner_supervisor.take_back_all()
        self.loop.call_later(self.settings.drain_seconds, self.runner_supervisor.kill_and_give_back)
        self.leave_timer = self.loop.call_every(LEAVE_SECONDS, self.leave_if_empty)

    def leave_if_empty(self) -> None:
        if not self.held_tasks.is_empty() or self.database_thread.waiting:
            return
        if self.leave_timer is not None:
            self.leave_timer.cancel()
        keeper_id = self.id
        self.database_thread.submit(
            lambda: self.database.write(lambda tx: keepers.close(tx, keeper_id, KeeperState.GONE)),
            self.leave,
            self.leave,
        )

    def leave(self, _: object) -> None:
        self.held_tasks.keeper_id = 0
        self.runner_supervisor.end()
        if self.dispatcher is not None:
            self.dispatcher.close()
        log.info("Worker stopped", action="stopped")
        self.loop.stop()


def run(settings: Settings, name: str) -> None:
    loop = EventLoop()
    Keeper(settings, name, loop, Database(settings.database, webhooks=settings.webhooks))
    loop.run()
