"""The scanner: finds due tasks, feeds them to the dispatcher, and keeps batches' status current.

It reads tasks in the order in which they are to start, only as many as the dispatcher has room
for, and continues where it stopped. Tasks that are due within the next seconds it reads ahead and
sends at their time.
"""

from __future__ import annotations

import heapq
import os
import random
import signal

import structlog

from actors.batch_upkeep import BatchUpkeep
from actors.dispatcher_connection import DispatcherConnection
from actors.event_loop import EventLoop, Timer
from drumline.config import Settings
from drumline.domain.dispatch.stall import StallState, observe_scan
from drumline.domain.sweeps.definition import PARTITION_TARGET_TYPE
from drumline.domain.sweeps.partitioning import node_partition_limit
from drumline.domain.task import DueTask
from drumline.errors import StoreUnavailable
from drumline.store import schema
from drumline.store.database import Database
from drumline.store.node import pauses
from drumline.store.sweep import partitions
from drumline.store.task import scan
from drumline.store.task.scan import Cursor
from drumline.store.tx import Tx
from drumline.telemetry import metrics
from protocol.messages import (
    AnyMessage,
    DispatcherReply,
    DispatcherRequest,
    Feed,
    FeedRequest,
    Register,
    RequestKind,
    Trigger,
)

log = structlog.get_logger()

PAGE = 500
CACHED_BATCHES = 1000
SHORTEST_PAUSE = 0.002


class Scanner:
    """One per node."""

    def __init__(self, settings: Settings, loop: EventLoop, database: Database) -> None:
        self.settings = settings
        self.loop = loop
        self.database = database
        self.room = 0
        """How many tasks the dispatcher still takes."""
        self.fed: set[int] = set()
        """Tasks that were fed and have not left the dispatcher."""
        self.fed_partitions: set[int] = set()
        self.cursor: Cursor | None = None
        """Where the next scan continues; None: at the most urgent task."""
        self.upcoming: list[tuple[int, int, int, DueTask]] = []
        """Tasks that were read ahead of their due time, a heap."""
        self.upcoming_versions: dict[int, int] = {}
        self.batch_cache: dict[int, bytes] = {}
        self.paused: tuple[str, ...] = ()
        self.partition_limit = 0
        self.held_partitions = 0
        """Partitions of sweeps that keepers of this node hold, as the database says."""
        self.refresh_limit_at = 0.0
        self.sent_limits: tuple[tuple[str, ...], int] | None = None
        """The pauses and the partition limit of the last Feed."""
        self.scan_timer: Timer | None = None
        self.queued = 0
        self.finished = 0
        self.stall = StallState()
        self.batch_upkeep = BatchUpkeep(settings, database)
        self.upkeep_wanted = False
        """Run batch upkeep after the next scan."""
        self.dispatcher = DispatcherConnection(
            loop,
            settings.endpoint("dispatcher"),
            registration=lambda: Register("scanner", "scanner", os.getpid()),
            receive=self.receive,
            on_registered=self.reset,
        )
        loop.on_signal(signal.SIGTERM, loop.stop)
        loop.call_every(settings.upkeep_interval, self.check_stall)
        self.schedule_scan(0)

    # --- messages --------------------------------------------------------------------------------

    def receive(self, message: AnyMessage) -> None:
        match message:
            case FeedRequest():
                self.handle_feed_request(message)
            case Trigger():
                self.scan_from_start()
            case DispatcherReply():
                pass
            case _:
                log.warning("Unexpected message ignored", action="unexpected_message",
                            message=type(message).__name__)  # fmt: skip

    def reset(self) -> None:
        """The dispatcher may be a new one that has none of the fed tasks: feed them again."""
        self.fed.clear()
        self.fed_partitions.clear()
        self.cursor = None
        self.sent_limits = None

    def handle_feed_request(self, message: FeedRequest) -> None:
        runs_ended = message.finished != self.finished
        self.fed.difference_update(message.removed)
        self.fed_partitions.difference_update(message.removed)
        self.room, self.queued, self.finished = message.room, message.queued, message.finished
        if runs_ended and not self.queued:
            self.upkeep_wanted = True
        self.schedule_scan(0)

    def scan_from_start(self) -> None:
        """There may be new tasks, which may be more urgent than the cursor."""
        self.cursor = None
        self.upkeep_wanted = True
        self.refresh_limit_at = 0.0
        self.schedule_scan(0)

    # --- the scan --------------------------------------------------------------------------------

    def schedule_scan(self, seconds: float) -> None:
        """Schedule the next scan, unless an earlier one is scheduled."""
        at = self.loop.now() + seconds
        if self.scan_timer is not None and not self.scan_timer.cancelled:
            if self.scan_timer.at <= at:
                return
            self.scan_timer.cancel()
        self.scan_timer = self.loop.call_later(seconds, self.scan)

    def scan(self) -> None:
        self.scan_timer = None
        try:
            self.schedule_scan(self.feed_due_tasks())
        except StoreUnavailable:
            self.schedule_scan(self.settings.scan_interval)
            raise
        if self.upkeep_wanted:
            self.upkeep_wanted = False
            self.upkeep_wanted = self.batch_upkeep.run()

    def feed_due_tasks(self) -> float:
        """Read and feed the next page of due tasks; returns the seconds until the next scan."""
        now = self.database.now()
        region = self.settings.region
        self.paused = tuple(self.database.read(lambda tx: pauses.current(tx, region)))
        if self.loop.now() >= self.refresh_limit_at:
            self.refresh_partition_limit()
        self.send_feed([])
        if self.room <= 0:
            return self.settings.scan_interval
        wanted = min(self.room, PAGE)
        horizon = now + int(self.settings.scan_ahead * 1e6)
        with metrics.scan_seconds.time():
            found, tasks = self.database.read(lambda tx: self.read_page(tx, horizon, wanted))
        metrics.scanned.inc(len(tasks))
        self.cursor = found[-1][0] if found else self.cursor
        ready = [task for task in tasks if task.due_at <= now]
        for task in tasks:
            if task.due_at > now:
                self.upcoming_versions[task.id] = task.version
                heapq.heappush(self.upcoming, (task.due_at, task.id, task.version, task))
        self.send_feed(ready)
        if len(found) == wanted:
            return SHORTEST_PAUSE if self.room > 0 else self.settings.scan_interval
        # All due tasks have been read. The next scan starts with the most urgent task again.
        self.cursor = None
        wait = self.settings.scan_interval * random.uniform(0.8, 1.0)
        if self.upcoming:
            wait = min(wait, max(0.0, (self.upcoming[0][0] - now) / 1e6))
        return wait

    def refresh_partition_limit(self) -> None:
        """This node's share of the partitions that can run, at most the configured limit."""
        region, node = self.settings.region, self.settings.node_name
        demand = self.database.read(lambda tx: partitions.read_demand(tx, region, node))
        self.partition_limit = node_partition_limit(
            self.settings.sweep_partition_limit, demand.wanted, demand.nodes
        )
        self.held_partitions = demand.here
        self.refresh_limit_at = self.loop.now() + self.settings.scan_interval

    def read_page(
        self, tx: Tx, horizon: int, wanted: int
    ) -> tuple[list[tuple[Cursor, int]], list[DueTask]]:
        """The next ids in order, and those of their tasks that were not read before."""
        found = scan.ids(tx, self.settings.region, horizon, self.cursor, wanted)
        unread = [
            cursor.id
            for cursor, version in found
            if cursor.id not in self.fed and self.upcoming_versions.get(cursor.id) != version
        ]
        if len(self.batch_cache) > CACHED_BATCHES:
            self.batch_cache.clear()
        tasks = scan.load(tx, unread, self.batch_cache) if unread else []
        tasks.sort(key=lambda task: (-task.priority, task.due_at, task.id))
        return found, [
            task for task in self.without_excess_partitions(tasks) if not self.is_paused(task)
        ]

    def without_excess_partitions(self, tasks: list[DueTask]) -> list[DueTask]:
        """Leave out partitions beyond this node's limit: they would only fill the queue."""
        # A new dispatcher does not know at once what its workers hold; the database does.
        room = max(0, self.partition_limit - max(len(self.fed_partitions), self.held_partitions))
        found = [task.id for task in tasks if task.target_type == PARTITION_TARGET_TYPE]
        excess = set(found[room:])
        return [task for task in tasks if task.id not in excess] if excess else tasks

    def is_paused(self, task: DueTask) -> bool:
        return task.type in self.paused or pauses.EVERYTHING in self.paused

    def send_feed(self, ready: list[DueTask]) -> None:
        """Send tasks that are due: those just read, and those read ahead."""
        now = self.database.now()
        while self.upcoming and self.upcoming[0][0] <= now and len(ready) < self.room:
            task = heapq.heappop(self.upcoming)[-1]
            # Another version: the row was changed and has been read again since.
            if self.upcoming_versions.get(task.id) == task.version:
                del self.upcoming_versions[task.id]
                ready.append(task)
        limits = (self.paused, self.partition_limit)
        if not self.dispatcher.epoch or not (ready or limits != self.sent_limits):
            return
        if self.dispatcher.send(Feed(tuple(ready), *limits)):
            self.sent_limits = limits
            self.fed.update(task.id for task in ready)
            self.fed_partitions.update(
                task.id for task in ready if task.target_type == PARTITION_TARGET_TYPE
            )
            self.room -= len(ready)

    # --- upkeep ----------------------------------------------------------------------------------

    def check_stall(self) -> None:
        """Recycle the workers if the queue grows while no run ends; then run batch upkeep."""
        self.stall, stalled = observe_scan(
            self.stall, self.queued, self.finished, self.settings.stall_rounds
        )
        if stalled:
            metrics.stalls.inc()
            log.warning("Queue grows while no run ends; recycling the workers", action="stall",
                        queued=self.queued)  # fmt: skip
            self.dispatcher.send(DispatcherRequest(0, RequestKind.RECYCLE))
            self.scan_from_start()
        if self.batch_upkeep.run():
            self.upkeep_wanted = True


def run(settings: Settings) -> None:
    loop = EventLoop()
    database = Database(settings.database, webhooks=settings.webhooks)
    schema.require(database)
    scanner = Scanner(settings, loop, database)
    log.info("Scanner ready", action="ready")
    loop.run()
    scanner.dispatcher.close()
    database.close()
