"""The scanner: finds due tasks and keeps batches' status. It runs nothing and decides nothing.

It reads in the order in which tasks are to start, only as many as the dispatcher has room for,
and from where it was; what is due in the next seconds it holds ready and sends at its time.
"""

from __future__ import annotations

import heapq
import os
import random
import signal

import structlog

from actors.dispatcher_connection import DispatcherConnection
from actors.event_loop import EventLoop, Timer
from drumline.config import Settings
from drumline.domain.dispatch.stall import StallState, observe_scan
from drumline.domain.states import BATCH_FINISHED
from drumline.domain.sweeps.sweep import PARTITION_TARGET_TYPE, node_partition_limit
from drumline.domain.task import DueTask
from drumline.errors import DrumlineError, StoreUnavailable
from drumline.store import schema
from drumline.store.batch import batches, operations
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
KNOWN_BATCHES = 1000
CLOSEST_SCANS = 0.002
SPREAD_HALTED = 5_000_000
"""A spread that has not moved for this many microseconds is carried on by the scanner."""


class Scanner:
    """One per node."""

    def __init__(self, settings: Settings, loop: EventLoop, database: Database) -> None:
        self.settings = settings
        self.loop = loop
        self.database = database
        self.room = 0
        self.fed: set[int] = set()
        self.cursor: Cursor | None = None
        self.soon: list[tuple[int, int, int, DueTask]] = []
        self.held: dict[int, int] = {}
        self.known_batches: dict[int, bytes] = {}
        self.paused: tuple[str, ...] = ()
        self.sweep_cap = 0
        self.told: tuple[tuple[str, ...], int] | None = None
        """What the dispatcher was told last of pauses and of the cap."""
        self.parts: set[int] = set()
        """Those fed that are partitions of sweeps."""
        self.parts_here = 0
        self.reckon_at = 0.0
        self.timer: Timer | None = None
        self.queued = 0
        self.finished = 0
        self.stall = StallState()
        self.upkeep_after = 0
        self.upkeep_asked = False
        self.link = DispatcherConnection(
            loop,
            settings.endpoint("dispatcher"),
            registration=lambda: Register("scanner", "scanner", os.getpid()),
            receive=self.receive,
            on_registered=self.forget,
        )
        loop.on_signal(signal.SIGTERM, loop.stop)
        loop.call_every(settings.upkeep_interval, self.timed)
        self.scan_in(0)

    # --- messages --------------------------------------------------------------------------------

    def receive(self, message: AnyMessage) -> None:
        match message:
            case FeedRequest():
                self.told_room(message)
            case Trigger():
                self.restart()
            case DispatcherReply():
                pass
            case _:
                log.warning("An unexpected message was ignored.", action="unexpected_message",
                            message=type(message).__name__)  # fmt: skip

    def forget(self) -> None:
        """Whoever welcomes us does not know what we fed before: be ready to feed it again."""
        self.fed.clear()
        self.parts.clear()
        self.cursor = None
        self.told = None

    def told_room(self, message: FeedRequest) -> None:
        moved = message.finished != self.finished
        self.fed.difference_update(message.removed)
        self.parts.difference_update(message.removed)
        self.room, self.queued, self.finished = message.room, message.queued, message.finished
        if moved and not self.queued:
            self.upkeep_asked = True
        self.scan_in(0)

    def restart(self) -> None:
        """Something new is there, perhaps more urgent than where we are: look from the top."""
        self.cursor = None
        self.upkeep_asked = True
        self.reckon_at = 0.0
        self.scan_in(0)

    # --- the scan --------------------------------------------------------------------------------

    def scan_in(self, seconds: float) -> None:
        """Have the next scan then, or earlier if one is planned earlier."""
        at = self.loop.now() + seconds
        if self.timer is not None and not self.timer.cancelled and self.timer.at <= at:
            return
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.loop.call_later(seconds, self.scan)

    def scan(self) -> None:
        self.timer = None
        try:
            self.scan_in(self.look())
        except StoreUnavailable:
            self.scan_in(self.settings.scan_interval)
            raise
        if self.upkeep_asked:
            self.upkeep_asked = False
            self.upkeep()

    def look(self) -> float:
        """Feed what is due; returns after how many seconds to look again."""
        now = self.database.now()
        region = self.settings.region
        self.paused = tuple(self.database.read(lambda tx: pauses.current(tx, region)))
        if self.loop.now() >= self.reckon_at:
            self.reckon()
        self.send([])
        if self.room <= 0:
            return self.settings.scan_interval
        wanted = min(self.room, PAGE)
        horizon = now + int(self.settings.scan_ahead * 1e6)
        with metrics.scan_seconds.time():
            found, dues = self.database.read(lambda tx: self.page(tx, horizon, wanted))
        metrics.scanned.inc(len(dues))
        self.cursor = found[-1][0] if found else self.cursor
        ready = [due for due in dues if due.due_at <= now]
        for due in dues:
            if due.due_at > now:
                self.held[due.id] = due.version
                heapq.heappush(self.soon, (due.due_at, due.id, due.version, due))
        self.send(ready)
        if len(found) == wanted:
            return CLOSEST_SCANS if self.room > 0 else self.settings.scan_interval
        # The end: the next look starts from the top again, since anything may have come.
        self.cursor = None
        wait = self.settings.scan_interval * random.uniform(0.8, 1.0)
        if self.soon:
            wait = min(wait, max(0.0, (self.soon[0][0] - now) / 1e6))
        return wait

    def reckon(self) -> None:
        """How many sweeps this node may run: its share of all, and never more than set."""
        region, node = self.settings.region, self.settings.node_name
        demand = self.database.read(lambda tx: partitions.demand(tx, region, node))
        self.sweep_cap = node_partition_limit(
            self.settings.sweep_partition_limit, demand.wanted, demand.nodes
        )
        self.parts_here = demand.here
        self.reckon_at = self.loop.now() + self.settings.scan_interval

    def page(
        self, tx: Tx, horizon: int, wanted: int
    ) -> tuple[list[tuple[Cursor, int]], list[DueTask]]:
        """The next ids in order, and the tasks behind those we have not passed on yet."""
        found = scan.ids(tx, self.settings.region, horizon, self.cursor, wanted)
        fresh = [
            cursor.id
            for cursor, version in found
            if cursor.id not in self.fed and self.held.get(cursor.id) != version
        ]
        if len(self.known_batches) > KNOWN_BATCHES:
            self.known_batches.clear()
        dues = scan.load(tx, fresh, self.known_batches) if fresh else []
        dues.sort(key=lambda due: (-due.priority, due.due_at, due.id))
        return found, [due for due in self.admitted(dues) if not self.is_paused(due)]

    def admitted(self, dues: list[DueTask]) -> list[DueTask]:
        """Without partitions that could not start here: they would take others' room."""
        # A new dispatcher does not know at once what its workers have; the database does.
        room = max(0, self.sweep_cap - max(len(self.parts), self.parts_here))
        parts = [due.id for due in dues if due.target_type == PARTITION_TARGET_TYPE]
        refused = set(parts[room:])
        return [due for due in dues if due.id not in refused] if refused else dues

    def is_paused(self, due: DueTask) -> bool:
        return due.type in self.paused or pauses.EVERYTHING in self.paused

    def send(self, ready: list[DueTask]) -> None:
        """Send what is due: what was just read, and what was held until its time."""
        now = self.database.now()
        while self.soon and self.soon[0][0] <= now and len(ready) < self.room:
            due = heapq.heappop(self.soon)[-1]
            if self.held.get(due.id) == due.version:  # else it was moved, and read again since
                del self.held[due.id]
                ready.append(due)
        limits = (self.paused, self.sweep_cap)
        news = ready or limits != self.told
        if not news or not self.link.epoch:
            return
        if self.link.send(Feed(tuple(ready), *limits)):
            self.told = limits
            self.fed.update(due.id for due in ready)
            self.parts.update(due.id for due in ready if due.target_type == PARTITION_TARGET_TYPE)
            self.room -= len(ready)

    # --- upkeep ----------------------------------------------------------------------------------

    def timed(self) -> None:
        """Every 20 seconds: keep the batches, and see whether anything moves."""
        self.stall, stalled = observe_scan(
            self.stall, self.queued, self.finished, self.settings.stall_rounds
        )
        if stalled:
            metrics.stalls.inc()
            log.warning("The queue grows and nothing ends; the workers are recycled.",
                        action="stall", queued=self.queued)  # fmt: skip
            self.link.send(DispatcherRequest(0, RequestKind.RECYCLE))
            self.restart()
        self.upkeep()

    def upkeep(self) -> None:
        """Bring the status of unfinished batches up to date, a page a round, none left out."""
        region, limit = self.settings.region, self.settings.upkeep_batches
        rows = self.database.read(
            lambda tx: batches.unfinished(tx, region, self.upkeep_after, limit)
        )
        self.upkeep_after = rows[-1].id if len(rows) == limit else 0
        for row in rows:
            try:
                self.keep(row.id)
            except StoreUnavailable:
                metrics.upkeep_failures.labels("batch").inc()
                raise
            except DrumlineError as error:
                metrics.upkeep_failures.labels("batch").inc()
                log.error("A batch's status could not be kept.", action="upkeep_failed",
                          batch_id=row.id, error=str(error))  # fmt: skip
        if len(rows) == limit:
            self.upkeep_asked = True

    def keep(self, batch_id: int) -> None:
        row = self.database.read(lambda tx: batches.get(tx, batch_id))
        if row.spread is not None:
            # Whoever began it is most likely at it; it is ours only if it has come to a halt.
            if row.updated_at > self.database.now() - SPREAD_HALTED:
                return
            operations.run_operation(self.database, batch_id, seconds=1.0)
            self.upkeep_asked = True
            row = self.database.read(lambda tx: batches.get(tx, batch_id))
        if batches.is_miscounted(row):
            log.error("A batch's counters were wrong and are recounted.", action="recount",
                      batch_id=batch_id)  # fmt: skip
            self.database.write(lambda tx: batches.recount(tx, batch_id))
            return
        if batches.status_now(row) == row.status and row.status not in BATCH_FINISHED:
            return
        state = self.database.write(lambda tx: batches.keep_status(tx, row))
        if state is not None and state in BATCH_FINISHED and state != row.status:
            log.info("A batch is finished.", action="batch_finished", batch_id=batch_id,
                     status=state.value)  # fmt: skip


def run(settings: Settings) -> None:
    loop = EventLoop()
    database = Database(settings.database, webhooks=settings.webhooks)
    schema.require(database)
    scanner = Scanner(settings, loop, database)
    log.info("The scanner is ready.", action="ready")
    loop.run()
    scanner.link.close()
    database.close()
