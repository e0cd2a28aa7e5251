"""The reaper: declares dead keepers, kills what is left of them, and gives their tasks back.

A keeper is dead when its counter has not moved for a time on the reaper's own monotonic clock;
wall clocks play no part. On this host the reaper kills a silent keeper and its run before it gives
the tasks back, so that no task runs under two owners.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import structlog

from actors.dispatcher_connection import DispatcherConnection
from actors.event_loop import EventLoop
from drumline.config import Settings
from drumline.domain.release import RetryLimits
from drumline.domain.states import KeeperState
from drumline.errors import StoreUnavailable
from drumline.runner.blackbox import BlackBox
from drumline.store import schema
from drumline.store.admin import alarms, audit
from drumline.store.database import Database
from drumline.store.job import callbacks
from drumline.store.node import keepers
from drumline.store.rows import KeeperRow
from drumline.store.sweep import sweep_log
from drumline.store.task import held_tasks, retention
from drumline.sweep_items.reader import FOLDER as ITEMS
from drumline.system import processes
from drumline.telemetry import metrics
from protocol.liveness import SilenceDetector
from protocol.messages import Register, Trigger

log = structlog.get_logger()

PRUNE_SECONDS = 60.0
CHECKPOINT_SECONDS = 1.0
DAY = 86_400_000_000


class Reaper:
    """One per node."""

    def __init__(self, settings: Settings, loop: EventLoop, database: Database) -> None:
        self.settings = settings
        self.database = database
        self.loop = loop
        self.limits = RetryLimits(settings.timeout_retries, settings.deaths_allowed)
        self.silence: SilenceDetector[int] = SilenceDetector(
            settings.dead_after, longest_gap=settings.dead_after / 2
        )
        self.counters: dict[int, int] = {}
        """The last heartbeat counter of each live keeper."""
        self.local_processes: dict[int, tuple[int, int]] = {}
        """The pid and start time of each keeper on this host."""
        self.database_reached = loop.now()
        self.dispatcher = DispatcherConnection(
            loop,
            settings.endpoint("dispatcher"),
            registration=lambda: Register("reaper", "reaper", os.getpid()),
            receive=lambda message: None,
        )
        loop.on_signal(signal.SIGTERM, loop.stop)
        loop.call_every(settings.reap_interval, self.check_keepers)
        loop.call_every(PRUNE_SECONDS, self.prune)

    def check_keepers(self) -> None:
        """Declare silent keepers dead, and give back what ended keepers hold."""
        now = self.loop.now()
        if now - self.database_reached > self.settings.dead_after / 2:
            # The reaper could not read their counters: the time of every keeper starts again.
            self.silence.restart(now)
        try:
            region = self.settings.region
            alive = self.database.read(lambda tx: keepers.read_alive(tx, region), tries=1)
            self.database.write(lambda tx: keepers.check_writable(tx), tries=1)
        except StoreUnavailable:
            self.kill_suspended_keepers()
            raise
        self.database_reached = self.loop.now()
        self.record_heartbeats(alive)
        silent = set(self.silence.silent_peers(self.database_reached))
        for keeper in alive:
            if keeper.id in silent or self.has_ended(keeper):
                self.declare_dead(keeper)
        self.give_back_tasks()
        self.expire_callbacks()

    def record_heartbeats(self, alive: list[KeeperRow]) -> None:
        ids = {keeper.id for keeper in alive}
        for ended in set(self.counters) - ids:
            self.silence.forget(ended)
            del self.counters[ended]
        for keeper in alive:
            if self.counters.get(keeper.id) != keeper.beat:
                self.counters[keeper.id] = keeper.beat
                self.silence.record_message(keeper.id, self.database_reached)
        self.local_processes = {k.id: (k.pid, k.pid_started) for k in alive if self.is_local(k)}

    def is_local(self, keeper: KeeperRow) -> bool:
        return bool(keeper.node == self.settings.node_name)

    def has_ended(self, keeper: KeeperRow) -> bool:
        """The process of a keeper on this host has ended: no need to wait for silence."""
        return self.is_local(keeper) and not processes.is_same(keeper.pid, keeper.pid_started)

    def declare_dead(self, keeper: KeeperRow) -> None:
        """Kill what is left of a keeper on this host, then declare it dead."""
        if self.is_local(keeper) and self.settings.kill_silent_workers:
            self.kill_keeper(keeper.id, keeper.pid, keeper.pid_started)
        if self.database.write(lambda tx: keepers.close(tx, keeper.id, KeeperState.DEAD)):
            log.warning("Keeper declared dead", action="keeper_dead", keeper=keeper.id,
                        worker=keeper.name)  # fmt: skip

    def kill_keeper(self, keeper_id: int, pid: int, pid_started: int) -> None:
        """Kill a keeper's process and everything that its runner started."""
        if processes.is_same(pid, pid_started):
            below = processes.descendants(pid)
            processes.kill_all([pid, *below])
        processes.kill_run(str(self.black_box_path(keeper_id)))

    def kill_suspended_keepers(self) -> None:
        """The database accepts no writes. A suspended keeper of this host may hold its lock
        (SQLite), which only the end of that process releases."""
        if self.loop.now() - self.database_reached < self.settings.dead_after:
            return
        for keeper_id, (pid, pid_started) in self.local_processes.items():
            if processes.is_same(pid, pid_started) and processes.is_suspended(pid):
                log.warning("Suspended keeper killed; it may hold the database lock",
                            action="suspended_keeper_killed", keeper=keeper_id)  # fmt: skip
                self.kill_keeper(keeper_id, pid, pid_started)

    def give_back_tasks(self) -> None:
        """Give back every task that an ended keeper owns, whenever it acquired it."""
        region = self.settings.region
        returned = 0
        for keeper in self.database.read(lambda tx: keepers.read_ended_owners(tx, region)):
            died = self.read_started_tasks(keeper)
            released = held_tasks.give_back(
                self.database, region, keeper.id, self.limits, died=died
            )
            for run in released:
                if run.id in died:
                    metrics.deaths.labels(run.handler.type).inc()
            returned += len(released)
            log.warning("Tasks of an ended keeper given back", action="given_back",
                        keeper=keeper.id, tasks=len(released), charged=sorted(died))  # fmt: skip
        if returned:
            self.dispatcher.send(Trigger())

    def expire_callbacks(self) -> None:
        """Settle runs whose callback is overdue, and callbacks that came early and were kept."""
        expired = callbacks.expire(self.database, self.settings.region, self.limits)
        if expired:
            metrics.callbacks.labels("timeout").inc(expired)
            log.warning("Callbacks expired", action="callback_timeout", runs=expired)
            self.dispatcher.send(Trigger())

    def black_box_path(self, keeper_id: int) -> Path:
        return self.settings.run_path / "running" / str(keeper_id)

    def read_started_tasks(self, keeper: KeeperRow) -> dict[int, str]:
        """The tasks that a dead keeper's runner had started, from its black box, each with the
        info that says so. They are charged with the death."""
        path = self.black_box_path(keeper.id)
        if not path.exists() or not self.is_local(keeper):
            return {}
        box = BlackBox(path)
        started = {
            entry.task_id: f"the worker {keeper.name} died under this task" for entry in box.read()
        }
        box.remove()
        return started

    def prune(self) -> None:
        """Delete expired rows and files, a chunk at a time."""
        now, region = self.database.now(), self.settings.region
        old = now - int(self.settings.keep_finished_days * DAY)
        requests = now - int(self.settings.keep_requests_hours * 3_600_000_000)
        audited = now - int(self.settings.keep_audit_days * DAY)
        deadline = time.monotonic() + PRUNE_SECONDS / 4
        for prune in (
            lambda tx: retention.prune_batches(tx, region, old),
            lambda tx: retention.prune_tasks(tx, region, old),
            lambda tx: sweep_log.prune_sweeps(tx, region, old),
            lambda tx: sweep_log.prune_lines(tx, region),
            lambda tx: retention.prune_requests(tx, requests),
            lambda tx: audit.prune(tx, audited),
            lambda tx: alarms.prune(tx, region, old),
            lambda tx: retention.prune_keepers(tx, region, now - DAY),
        ):
            while time.monotonic() < deadline and (deleted := self.database.write(prune)):
                metrics.pruned.inc(deleted)
        self.delete_cached_items(self.settings.keep_finished_days * 86_400)

    def delete_cached_items(self, seconds: float) -> None:
        """Delete old cached item sources; a sweep that needs one fetches it again."""
        for file in (self.settings.run_path / ITEMS).glob("*"):
            if time.time() - file.stat().st_mtime > seconds:
                file.unlink(missing_ok=True)


def run(settings: Settings) -> None:
    loop = EventLoop()
    # A short busy timeout: the reaper itself must kill a suspended process that holds the lock.
    database = Database(
        settings.database, patience=settings.reap_interval, webhooks=settings.webhooks
    )
    schema.require(database)
    reaper = Reaper(settings, loop, database)
    if checkpoint := database.dialect.checkpoint:
        loop.call_every(CHECKPOINT_SECONDS, lambda: checkpoint(database.engine))
    log.info("Reaper ready", action="ready")
    loop.run()
    reaper.dispatcher.close()
    database.close()
