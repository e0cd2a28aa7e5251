"""The reaper: finds keepers that died, ends what is left of them, and gives their tasks back.

It judges by its own monotonic clock and by counters that do not move, never by wall clocks. On
this host it kills a silent keeper and its run first, so that nothing runs under two owners.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import Row

from actors.dispatcher_connection import DispatcherConnection
from actors.event_loop import EventLoop
from drumline.config import Settings
from drumline.domain.release import RetryLimits
from drumline.errors import StoreUnavailable
from drumline.runner.blackbox import BlackBox
from drumline.store import schema
from drumline.store.admin import alarms, audit
from drumline.store.database import Database
from drumline.store.job import callbacks
from drumline.store.node import keepers
from drumline.store.node.keepers import KeeperState
from drumline.store.sweep import sweep_log
from drumline.store.task import holdings, retention
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
        self.watch: SilenceDetector[int] = SilenceDetector(
            settings.dead_after, longest_gap=settings.dead_after / 2
        )
        self.beats: dict[int, int] = {}
        self.local: dict[int, tuple[int, int]] = {}
        self.reached = loop.now()
        self.link = DispatcherConnection(
            loop,
            settings.endpoint("dispatcher"),
            registration=lambda: Register("reaper", "reaper", os.getpid()),
            receive=lambda message: None,
        )
        loop.on_signal(signal.SIGTERM, loop.stop)
        loop.call_every(settings.reap_interval, self.round)
        loop.call_every(PRUNE_SECONDS, self.prune)

    def round(self) -> None:
        """One look at all keepers."""
        now = self.loop.now()
        if now - self.reached > self.settings.dead_after / 2:
            # We could not see them, so they could not show themselves: begin again.
            self.watch.restart(now)
        try:
            region = self.settings.region
            living = self.database.read(lambda tx: keepers.alive(tx, region), tries=1)
            self.database.write(lambda tx: keepers.prove_writable(tx), tries=1)
        except StoreUnavailable:
            self.end_stopped()
            raise
        self.reached = self.loop.now()
        self.note(living)
        silent = set(self.watch.silent_peers(self.reached))
        for keeper in living:
            if keeper.id in silent or self.is_gone(keeper):
                self.bury(keeper)
        self.give_back_all()
        self.expire_callbacks()

    def note(self, living: list[Row[Any]]) -> None:
        ids = {keeper.id for keeper in living}
        for old in set(self.beats) - ids:
            self.watch.forget(old)
            del self.beats[old]
        for keeper in living:
            if self.beats.get(keeper.id) != keeper.beat:
                self.beats[keeper.id] = keeper.beat
                self.watch.record_message(keeper.id, self.reached)
        self.local = {k.id: (k.pid, k.pid_started) for k in living if self.is_local(k)}

    def is_local(self, keeper: Row[Any]) -> bool:
        return bool(keeper.node == self.settings.node_name)

    def is_gone(self, keeper: Row[Any]) -> bool:
        """A keeper of this host whose process has ended need not be waited for."""
        return self.is_local(keeper) and not processes.is_same(keeper.pid, keeper.pid_started)

    def bury(self, keeper: Row[Any]) -> None:
        """End what is left of a keeper on this host, then declare it dead."""
        if self.is_local(keeper) and self.settings.kill_silent_workers:
            self.end_process(keeper.id, keeper.pid, keeper.pid_started)
        if self.database.write(lambda tx: keepers.close(tx, keeper.id, KeeperState.DEAD)):
            log.warning("A keeper is dead.", action="keeper_dead", keeper=keeper.id,
                        worker=keeper.name)  # fmt: skip

    def end_process(self, keeper_id: int, pid: int, pid_started: int) -> None:
        if processes.is_same(pid, pid_started):
            below = processes.descendants(pid)
            processes.kill_all([pid, *below])
        processes.end_run(str(self.black_box(keeper_id)))

    def end_stopped(self) -> None:
        """The database lets nobody write: if a stopped keeper of this host holds the lock, only
        its end frees it."""
        if self.loop.now() - self.reached < self.settings.dead_after:
            return
        for keeper_id, (pid, pid_started) in self.local.items():
            if processes.is_same(pid, pid_started) and processes.is_suspended(pid):
                log.warning("A stopped keeper may hold the database's lock; it is killed.",
                            action="stopped_keeper_killed", keeper=keeper_id)  # fmt: skip
                self.end_process(keeper_id, pid, pid_started)

    def give_back_all(self) -> None:
        """Whatever an ended incarnation still owns, whenever it came to own it."""
        region = self.settings.region
        returned = 0
        for keeper in self.database.read(lambda tx: keepers.owning(tx, region)):
            died = self.charged(keeper)
            ended = holdings.give_back(self.database, region, keeper.id, self.limits, died=died)
            for run in ended:
                if run.id in died:
                    metrics.deaths.labels(run.handler.type).inc()
            returned += len(ended)
            log.warning("Tasks of an ended keeper were given back.", action="given_back",
                        keeper=keeper.id, tasks=len(ended), charged=sorted(died))  # fmt: skip
        if returned:
            self.link.send(Trigger())

    def expire_callbacks(self) -> None:
        """Callbacks that never came, and those that came early and were left unsettled."""
        late = callbacks.expire(self.database, self.settings.region, self.limits)
        if late:
            metrics.callbacks.labels("timeout").inc(late)
            log.warning("Callbacks did not come in time.", action="callback_timeout", runs=late)
            self.link.send(Trigger())

    def black_box(self, keeper_id: int) -> Path:
        return self.settings.run_path / "running" / str(keeper_id)

    def charged(self, keeper: Row[Any]) -> dict[int, str]:
        """The tasks that a dead keeper's runner had started, from its black box."""
        path = self.black_box(keeper.id)
        if not path.exists() or not self.is_local(keeper):
            return {}
        box = BlackBox(path)
        started = {
            entry.task_id: f"the worker {keeper.name} died under this task" for entry in box.read()
        }
        box.remove()
        return started

    def prune(self) -> None:
        """Let go of what is old, a chunk at a time."""
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
            while time.monotonic() < deadline and (gone := self.database.write(prune)):
                metrics.pruned.inc(gone)
        self.forget_items(self.settings.keep_finished_days * 86_400)

    def forget_items(self, seconds: float) -> None:
        """Item sources that were cached long ago; a sweep that needs one fetches it again."""
        for file in (self.settings.run_path / ITEMS).glob("*"):
            if time.time() - file.stat().st_mtime > seconds:
                file.unlink(missing_ok=True)


def run(settings: Settings) -> None:
    loop = EventLoop()
    # It must not wait for ever behind a stopped writer: it is the one who ends it.
    database = Database(
        settings.database, patience=settings.reap_interval, webhooks=settings.webhooks
    )
    schema.require(database)
    reaper = Reaper(settings, loop, database)
    if checkpoint := database.dialect.checkpoint:
        loop.call_every(CHECKPOINT_SECONDS, lambda: checkpoint(database.engine))
    log.info("The reaper is ready.", action="ready")
    loop.run()
    reaper.link.close()
    database.close()
