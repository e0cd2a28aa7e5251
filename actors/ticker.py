"""The ticker: materialises the firings of the near future, and decides each at its time.

It only decides and writes; the scanner finds what it let through. Several tickers may be at work
on the same jobs: who comes second finds the firing decided, or the job's row moved on.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Row
from sqlalchemy.exc import IntegrityError

from actors.dispatcher_connection import DispatcherConnection
from actors.event_loop import EventLoop, Timer
from drumline.config import Settings
from drumline.domain.jobs.firing import FiringDecision
from drumline.domain.jobs.schedule import materialise_until
from drumline.domain.states import TaskState
from drumline.errors import StoreUnavailable, WrongUse
from drumline.store import schema
from drumline.store.database import Database
from drumline.store.job import decisions, firings, jobs, missed
from drumline.store.task.runs import RaceLost
from drumline.store.tx import Tx
from drumline.telemetry import metrics
from protocol.messages import AnyMessage, DispatcherRequest, Register, RequestKind, Trigger

log = structlog.get_logger()

SECOND = 1_000_000
DAY = 86_400 * SECOND
LOOK_SECONDS = 1.0
CLOSEST_LOOKS = 0.05
LOOKS_SHARE = 4
"""However often others ring: after a look there is a pause of so many times what it took, so that
what is due has its turn."""
FOLLOW_SECONDS = 0.25
QUEUE_SECONDS = 0.1
JOBS_A_SLICE = 200
ROWS_A_SLICE = 1000
SLICE_PAUSE = 0.01
"""Between two slices of what is to come, what is due has its turn."""
FIRINGS_A_ROUND = 5000
DECISIONS_A_COMMIT = 100
BROKEN = 600 * SECOND
"""A job whose schedule cannot be read any more is looked at again after this."""


class Ticker:
    """One per node."""

    def __init__(self, settings: Settings, loop: EventLoop, database: Database) -> None:
        self.settings = settings
        self.region = settings.region
        self.loop = loop
        self.database = database
        self.next_fire: Timer | None = None
        self.next_slice: Timer | None = None
        self.next_look: Timer | None = None
        self.rested = loop.now()
        self.following: Timer | None = None
        self.queues: Timer | None = None
        self.step = int(settings.materialise_ahead * SECOND)
        self.link = DispatcherConnection(
            loop,
            settings.endpoint("dispatcher"),
            registration=lambda: Register("ticker", "ticker", os.getpid()),
            receive=self.receive,
        )
        loop.on_signal(signal.SIGTERM, loop.stop)
        # First of all: before a worker starts what was missed while everything was down.
        loop.call_later(0, self.guarded(self.sweep))
        loop.call_later(0, self.look)
        loop.call_every(LOOK_SECONDS, self.look)
        loop.call_every(settings.unstarted_recheck_interval, self.guarded(self.sweep))

    def receive(self, message: AnyMessage) -> None:
        """Something is new, perhaps a job."""
        if isinstance(message, Trigger) and self.next_look is None:
            wait = max(0.0, self.rested - self.loop.now())
            self.next_look = self.loop.call_later(wait, self.look)

    def look(self) -> None:
        self.next_look = None
        begun = self.loop.now()
        self.guarded(self.look_around)()
        spent = self.loop.now() - begun
        self.rested = begun + spent + max(CLOSEST_LOOKS, LOOKS_SHARE * spent)

    def look_around(self) -> None:
        until = self.database.now() + self.step
        seen = self.database.read(lambda tx: jobs.glance(tx, self.region, until))
        if seen.behind:
            self.guarded(self.materialise)()
        if seen.behind or seen.undecided:
            self.guarded(self.fire)()
        self.following = self.kept_up(
            self.following, seen.following, FOLLOW_SECONDS, self.follow_up
        )
        self.queues = self.kept_up(self.queues, seen.queued, QUEUE_SECONDS, self.start_queued)

    def kept_up(
        self, timer: Timer | None, wanted: bool, seconds: float, part: Callable[[], object]
    ) -> Timer | None:
        """What is done often is done only while there is a reason for it."""
        if wanted and timer is None:
            return self.loop.call_every(seconds, self.guarded(part))
        if timer is not None and not wanted:
            timer.cancel()
            return None
        return timer

    def guarded(self, part: Callable[[], object]) -> Callable[[], None]:
        """A tick that fails is logged and the next goes on."""

        def attempt() -> None:
            try:
                part()
            except StoreUnavailable:
                raise
            except Exception:  # whatever it is: other jobs, and the next tick, must go on
                metrics.upkeep_failures.labels("job").inc()
                log.exception("A tick failed.", action="tick_failed", part=str(part))

        return attempt

    # --- ahead -----------------------------------------------------------------------------------

    def materialise(self) -> None:
        """Write the firings of the next two steps, for jobs that have less than one left."""
        if self.next_slice is not None:
            self.next_slice.cancel()
            self.next_slice = None
        now = self.database.now()
        rows = self.database.read(
            lambda tx: jobs.to_materialise(tx, self.region, now + self.step, JOBS_A_SLICE)
        )
        plans: list[firings.Plan] = []
        size = 0
        for row in rows:
            plan = self.plan(row, now)
            if plan is not None:
                plans.append(plan)
                size += len(plan.times)
            if size >= ROWS_A_SLICE:
                break
        self.carry_out(plans)
        if size >= ROWS_A_SLICE or len(rows) == JOBS_A_SLICE:
            self.next_slice = self.loop.call_later(SLICE_PAUSE, self.guarded(self.materialise))

    def plan(self, row: Row[Any], now: int) -> firings.Plan | None:
        """What a job's next firings are; None if what it missed had to be settled first."""
        try:
            schedule = jobs.schedule_of(row)
        except WrongUse as error:
            log.error("A job's schedule cannot be read any more.", action="bad_schedule",
                      job_id=row.id, error=str(error))  # fmt: skip
            return firings.Plan(row, [], now + BROKEN)
        if any(schedule.between(row.fired_until, now - missed.grace(row) - 1, limit=1)):
            self.settle_missed(row.id)
            return None
        until = materialise_until(row.fired_until, now, self.step)
        times = list(schedule.between(row.fired_until, until))
        if not times:
            # Nothing to look at until just before its next firing, or for a day at most.
            following = schedule.next_after(row.fired_until)
            until = now + DAY if following is None else min(following - 1, now + DAY)
        return firings.Plan(row, times, until)

    def carry_out(self, plans: Sequence[firings.Plan]) -> None:
        if not plans:
            return
        # By their ids, as every ticker does: two of them wait for each other only one way.
        ordered = sorted(plans, key=lambda plan: plan.row.id)
        try:
            self.database.write(partial(firings.materialise, plans=ordered))
        except IntegrityError:
            for plan in ordered:
                self.guarded(
                    partial(self.database.write, partial(firings.materialise, plans=[plan]))
                )()

    def follow_up(self) -> None:
        """The next firing of jobs that fire a while after each run has ended."""
        rows = self.database.read(
            lambda tx: jobs.idle_after_completion(tx, self.region, JOBS_A_SLICE)
        )
        for row in rows:
            self.guarded(partial(self.database.write, partial(firings.plan_after, row=row)))()
        if rows:
            self.fire()

    # --- at their time ---------------------------------------------------------------------------

    def fire(self) -> None:
        """Decide what is due, pass on what needs no decision, and plan the next look."""
        if self.next_fire is not None:
            self.next_fire.cancel()
            self.next_fire = None
        now = self.database.now()
        found, rows = self.database.read(partial(self._soon, now=now))
        late = {f.job_id for f in found if missed.is_late(rows[f.job_id], f.scheduled_at, now)}
        if late:
            for job_id in sorted(late):
                self.guarded(partial(self.settle_missed, job_id))()
            found, rows = self.database.read(partial(self._soon, now=now))
        plain = {job_id for job_id, row in rows.items() if firings.is_plain(row)}
        self.pass_on([f.id for f in found if f.job_id in plain])
        others = [f for f in found if f.job_id not in plain]
        due = [f for f in others if f.due_at <= now]
        self.decide(due)
        if len(due) < len(others):
            wait = others[len(due)].due_at - self.database.now()
        elif len(found) == FIRINGS_A_ROUND:
            wait = 0
        else:
            return
        self.next_fire = self.loop.call_later(max(0, wait) / SECOND, self.guarded(self.fire))

    def _soon(self, tx: Tx, now: int) -> tuple[list[Row[Any]], dict[int, Row[Any]]]:
        """The next firings in order, and their jobs."""
        ahead = now + int(self.settings.scan_ahead * SECOND)
        found = firings.undecided(tx, self.region, ahead, FIRINGS_A_ROUND)
        ids = sorted({firing.job_id for firing in found})
        return found, jobs.rows_of(tx, ids) if ids else {}

    def pass_on(self, ids: list[int]) -> None:
        if ids:
            passed = self.database.write(lambda tx: firings.pass_on(tx, ids))
            metrics.firings.labels(TaskState.PENDING.value).inc(passed)
            self.link.send(Trigger())

    def decide(self, due: Sequence[Row[Any]]) -> None:
        """Decide many in one commit, one of each job; if anything interferes, one by one."""
        for group in _groups(due):
            try:
                self.announce(group, self.database.write(partial(decisions.fire, firings=group)))
            except RaceLost:
                for firing_id, job_id in group.items():
                    self.guarded(partial(self.decide_one, firing_id, job_id))()
        if due:
            self.link.send(Trigger())

    def decide_one(self, firing_id: int, job_id: int) -> None:
        """Until it is decided: each loser of a race has seen another's decision made."""
        one = {firing_id: job_id}
        while True:
            try:
                self.announce(one, self.database.write(partial(decisions.fire, firings=one)))
                return
            except RaceLost:
                continue

    def announce(self, group: Mapping[int, int], decisions: Mapping[int, FiringDecision]) -> None:
        for firing_id, decision in decisions.items():
            job_id = group[firing_id]
            metrics.firings.labels(decision.state.value).inc()
            if decision.state is TaskState.SCHEDULED:
                self.queues = self.kept_up(self.queues, True, QUEUE_SECONDS, self.start_queued)
            for task_id in decision.cancel:
                self.link.send(DispatcherRequest(0, RequestKind.KILL, task_id=task_id))
            log.info("A firing was decided.", action="firing", job_id=job_id, task_id=firing_id,
                     state=decision.state.value, reason=decision.reason)  # fmt: skip

    # --- too late --------------------------------------------------------------------------------

    def settle_missed(self, job_id: int) -> None:
        bound = self.settings.catch_up_limit
        try:
            misfire = self.database.write(lambda tx: missed.settle(tx, job_id, bound))
        except (RaceLost, IntegrityError):
            return  # another is at it; the next look sees what is left
        if misfire is not None:
            metrics.misfires.inc()
            log.warning("Firings of a job were missed.", action="misfire", job_id=job_id,
                        reason=misfire.reason)  # fmt: skip

    def sweep(self) -> None:
        """Runs let through just before everything stopped, and never started: take them back to
        be judged by their job's catch-up mode like any other missed firing."""
        ids = self.database.read(lambda tx: missed.unstarted(tx, self.region, FIRINGS_A_ROUND))
        if ids:
            recalled = self.database.write(lambda tx: missed.recall(tx, ids))
            log.warning("Runs that nobody was there to start are judged again.", action="recall",
                        runs=recalled)  # fmt: skip

    # --- queues ----------------------------------------------------------------------------------

    def start_queued(self) -> None:
        """Runs that wait for their turn start as soon as there is room for them."""
        for job_id in self.database.read(partial(decisions.startable_jobs, region=self.region)):
            try:
                started = self.database.write(partial(decisions.start_queued, job_id=job_id))
            except RaceLost:
                continue  # the next round looks again
            if started:
                self.link.send(Trigger())


def _groups(due: Sequence[Row[Any]]) -> list[dict[int, int]]:
    """Firings in groups for one commit each: earlier ones first, and of no job two."""
    waves: list[dict[int, int]] = []
    seen: Counter[int] = Counter()
    for firing in due:
        turn = seen[firing.job_id]
        seen[firing.job_id] += 1
        if turn == len(waves):
            waves.append({})
        waves[turn][firing.id] = firing.job_id
    groups = []
    for wave in waves:
        # By their jobs, as every ticker does: two of them wait for each other only one way.
        ordered = sorted(wave.items(), key=lambda item: item[1])
        for start in range(0, len(ordered), DECISIONS_A_COMMIT):
            groups.append(dict(ordered[start : start + DECISIONS_A_COMMIT]))
    return groups


def run(settings: Settings) -> None:
    loop = EventLoop()
    database = Database(settings.database)
    schema.require(database)
    ticker = Ticker(settings, loop, database)
    log.info("The ticker is ready.", action="ready")
    loop.run()
    ticker.link.close()
    database.close()
