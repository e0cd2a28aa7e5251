"""The ticker: materialises the firings of the near future, and decides each at its time.

It only decides and writes; the scanner finds the runs that it made pending. Several tickers may
process the same jobs: the second finds the firing decided or the job's row changed.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog
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
from drumline.store.rows import JobRow
from drumline.store.tx import RaceLost, Tx
from drumline.telemetry import metrics
from protocol.messages import AnyMessage, DispatcherRequest, Register, RequestKind, Trigger

log = structlog.get_logger()

SECOND = 1_000_000
DAY = 86_400 * SECOND
CHECK_SECONDS = 1.0
SHORTEST_PAUSE = 0.05
PAUSE_FACTOR = 4
"""The pause between two triggered checks is at least this many times the duration of a check, so
that frequent triggers do not delay firings that are due."""
FOLLOW_SECONDS = 0.25
QUEUE_SECONDS = 0.1
JOBS_PER_SLICE = 200
ROWS_PER_SLICE = 1000
SLICE_PAUSE = 0.01
"""Between two slices of materialising, in which due firings are decided."""
FIRINGS_PER_ROUND = 5000
DECISIONS_PER_COMMIT = 100
BROKEN = 600 * SECOND
"""Microseconds after which a job whose schedule is unreadable is checked again."""


class Ticker:
    """One per node."""

    def __init__(self, settings: Settings, loop: EventLoop, database: Database) -> None:
        self.settings = settings
        self.region = settings.region
        self.loop = loop
        self.database = database
        self.decide_timer: Timer | None = None
        self.materialise_timer: Timer | None = None
        self.check_timer: Timer | None = None
        self.next_check_at = loop.now()
        """A triggered check runs at this time at the earliest."""
        self.follow_timer: Timer | None = None
        self.queue_timer: Timer | None = None
        self.step = int(settings.materialise_ahead * SECOND)
        self.dispatcher = DispatcherConnection(
            loop,
            settings.endpoint("dispatcher"),
            registration=lambda: Register("ticker", "ticker", os.getpid()),
            receive=self.receive,
        )
        loop.on_signal(signal.SIGTERM, loop.stop)
        # Before anything else: otherwise a worker starts runs that were missed while it was down.
        loop.call_later(0, self.logging_errors(self.recheck_unstarted_runs))
        loop.call_later(0, self.check)
        loop.call_every(CHECK_SECONDS, self.check)
        loop.call_every(
            settings.unstarted_recheck_interval, self.logging_errors(self.recheck_unstarted_runs)
        )

    def receive(self, message: AnyMessage) -> None:
        """A trigger: a job may have been created or changed."""
        if isinstance(message, Trigger) and self.check_timer is None:
            wait = max(0.0, self.next_check_at - self.loop.now())
            self.check_timer = self.loop.call_later(wait, self.check)

    def check(self) -> None:
        self.check_timer = None
        started = self.loop.now()
        self.logging_errors(self.check_jobs)()
        duration = self.loop.now() - started
        self.next_check_at = started + duration + max(SHORTEST_PAUSE, PAUSE_FACTOR * duration)

    def check_jobs(self) -> None:
        """Materialise and decide what is due; run frequent timers while some jobs need them."""
        until = self.database.now() + self.step
        state = self.database.read(lambda tx: jobs.read_ticker_state(tx, self.region, until))
        if state.behind:
            self.logging_errors(self.materialise)()
        if state.behind or state.undecided:
            self.logging_errors(self.decide_due_firings)()
        self.follow_timer = self.toggle_timer(
            self.follow_timer, state.following, FOLLOW_SECONDS, self.plan_after_completion
        )
        self.queue_timer = self.toggle_timer(
            self.queue_timer, state.queued, QUEUE_SECONDS, self.start_queued_runs
        )

    def toggle_timer(
        self, timer: Timer | None, wanted: bool, seconds: float, step: Callable[[], object]
    ) -> Timer | None:
        """Start a frequent timer when it is wanted, and cancel it when it no longer is."""
        if wanted and timer is None:
            return self.loop.call_every(seconds, self.logging_errors(step))
        if timer is not None and not wanted:
            timer.cancel()
            return None
        return timer

    def logging_errors(self, step: Callable[[], object]) -> Callable[[], None]:
        """The step with its errors logged, so that other jobs and later ticks go on."""

        def attempt() -> None:
            try:
                step()
            except StoreUnavailable:
                raise
            except Exception:
                metrics.upkeep_failures.labels("job").inc()
                log.exception("Ticker step failed", action="tick_failed", step=str(step))

        return attempt

    # --- materialising ---------------------------------------------------------------------------

    def materialise(self) -> None:
        """Write the firings of the next two steps, for jobs that have less than one step left."""
        if self.materialise_timer is not None:
            self.materialise_timer.cancel()
            self.materialise_timer = None
        now = self.database.now()
        rows = self.database.read(
            lambda tx: jobs.read_jobs_behind(tx, self.region, now + self.step, JOBS_PER_SLICE)
        )
        plans: list[firings.Plan] = []
        size = 0
        for row in rows:
            plan = self.plan_firings(row, now)
            if plan is not None:
                plans.append(plan)
                size += len(plan.times)
            if size >= ROWS_PER_SLICE:
                break
        self.write_plans(plans)
        if size >= ROWS_PER_SLICE or len(rows) == JOBS_PER_SLICE:
            self.materialise_timer = self.loop.call_later(
                SLICE_PAUSE, self.logging_errors(self.materialise)
            )

    def plan_firings(self, row: JobRow, now: int) -> firings.Plan | None:
        """A job's next firings; None if missed firings had to be settled first."""
        try:
            schedule = jobs.schedule_of(row)
        except WrongUse as error:
            log.error("Stored schedule cannot be read", action="bad_schedule", job_id=row.id,
                      error=str(error))  # fmt: skip
            return firings.Plan(row, [], now + BROKEN)
        if any(schedule.between(row.fired_until, now - missed.grace(row) - 1, limit=1)):
            self.settle_missed(row.id)
            return None
        until = materialise_until(row.fired_until, now, self.step)
        times = list(schedule.between(row.fired_until, until))
        if not times:
            # The job needs no check until just before its next firing, for a day at most.
            following = schedule.next_after(row.fired_until)
            until = now + DAY if following is None else min(following - 1, now + DAY)
        return firings.Plan(row, times, until)

    def write_plans(self, plans: Sequence[firings.Plan]) -> None:
        if not plans:
            return
        # In the order of job ids, as in every ticker: so two tickers cannot deadlock.
        ordered = sorted(plans, key=lambda plan: plan.row.id)
        try:
            self.database.write(partial(firings.materialise, plans=ordered))
        except IntegrityError:
            for plan in ordered:
                self.logging_errors(
                    partial(self.database.write, partial(firings.materialise, plans=[plan]))
                )()

    def plan_after_completion(self) -> None:
        """Write the next firing of jobs that fire a while after each run has ended."""
        rows = self.database.read(
            lambda tx: jobs.idle_after_completion(tx, self.region, JOBS_PER_SLICE)
        )
        for row in rows:
            self.logging_errors(
                partial(self.database.write, partial(firings.plan_after, row=row))
            )()
        if rows:
            self.decide_due_firings()

    # --- decisions -------------------------------------------------------------------------------

    def decide_due_firings(self) -> None:
        """Decide due firings, make those pending that need no decision, and set the next timer."""
        if self.decide_timer is not None:
            self.decide_timer.cancel()
            self.decide_timer = None
        now = self.database.now()
        found, rows = self.database.read(partial(self._read_upcoming, now=now))
        late = {f.job_id for f in found if missed.is_late(rows[f.job_id], f.scheduled_at, now)}
        if late:
            for job_id in sorted(late):
                self.logging_errors(partial(self.settle_missed, job_id))()
            found, rows = self.database.read(partial(self._read_upcoming, now=now))
        plain = {job_id for job_id, row in rows.items() if firings.is_plain(row)}
        self.make_pending([f.id for f in found if f.job_id in plain])
        others = [f for f in found if f.job_id not in plain]
        due = [f for f in others if f.due_at <= now]
        self.decide(due)
        if len(due) < len(others):
            wait = others[len(due)].due_at - self.database.now()
        elif len(found) == FIRINGS_PER_ROUND:
            wait = 0
        else:
            return
        self.decide_timer = self.loop.call_later(
            max(0, wait) / SECOND, self.logging_errors(self.decide_due_firings)
        )

    def _read_upcoming(
        self, tx: Tx, now: int
    ) -> tuple[list[firings.UndecidedFiring], dict[int, JobRow]]:
        """The next firings in order, and their jobs."""
        ahead = now + int(self.settings.scan_ahead * SECOND)
        found = firings.read_undecided(tx, self.region, ahead, FIRINGS_PER_ROUND)
        ids = sorted({firing.job_id for firing in found})
        return found, jobs.rows_of(tx, ids) if ids else {}

    def make_pending(self, ids: list[int]) -> None:
        """Make firings of jobs without a policy pending, ahead of their time."""
        if ids:
            changed = self.database.write(lambda tx: firings.make_pending(tx, ids))
            metrics.firings.labels(TaskState.PENDING.value).inc(changed)
            self.dispatcher.send(Trigger())

    def decide(self, due: Sequence[firings.UndecidedFiring]) -> None:
        """Decide many firings in one commit, one per job; one by one if a race was lost."""
        for group in _groups(due):
            try:
                decided = self.database.write(partial(decisions.fire, firings=group))
                self.report_decisions(group, decided)
            except RaceLost:
                for firing_id, job_id in group.items():
                    self.logging_errors(partial(self.decide_one, firing_id, job_id))()
        if due:
            self.dispatcher.send(Trigger())

    def decide_one(self, firing_id: int, job_id: int) -> None:
        """Retry until it is decided: each lost race means that another decision was made."""
        one = {firing_id: job_id}
        while True:
            try:
                decided = self.database.write(partial(decisions.fire, firings=one))
                self.report_decisions(one, decided)
                return
            except RaceLost:
                continue

    def report_decisions(
        self, group: Mapping[int, int], decided: Mapping[int, FiringDecision]
    ) -> None:
        """Log decisions, have replaced runs killed, and watch queued runs."""
        for firing_id, decision in decided.items():
            job_id = group[firing_id]
            metrics.firings.labels(decision.state.value).inc()
            if decision.state is TaskState.SCHEDULED:
                self.queue_timer = self.toggle_timer(
                    self.queue_timer, True, QUEUE_SECONDS, self.start_queued_runs
                )
            for task_id in decision.cancel:
                self.dispatcher.send(DispatcherRequest(0, RequestKind.KILL, task_id=task_id))
            log.info("Firing decided", action="firing", job_id=job_id, task_id=firing_id,
                     state=decision.state.value, reason=decision.reason)  # fmt: skip

    # --- missed firings --------------------------------------------------------------------------

    def settle_missed(self, job_id: int) -> None:
        """Apply a job's catch-up mode to its missed firings."""
        limit = self.settings.catch_up_limit
        try:
            misfire = self.database.write(lambda tx: missed.catch_up(tx, job_id, limit))
        except (RaceLost, IntegrityError):
            return  # another ticker settles them; the next check finds what is left
        if misfire is not None:
            metrics.misfires.inc()
            log.warning("Firings missed", action="misfire", job_id=job_id,
                        reason=misfire.reason)  # fmt: skip

    def recheck_unstarted_runs(self) -> None:
        """Re-evaluate runs that became pending just before an outage and were never started:
        their job's catch-up mode decides, as for any other missed firing."""
        ids = self.database.read(
            lambda tx: missed.read_unstarted(tx, self.region, FIRINGS_PER_ROUND)
        )
        if ids:
            recalled = self.database.write(lambda tx: missed.make_undecided(tx, ids))
            log.warning("Unstarted runs re-evaluated as misfires", action="unstarted_rechecked",
                        runs=recalled)  # fmt: skip

    # --- queued runs -----------------------------------------------------------------------------

    def start_queued_runs(self) -> None:
        """Make queued runs pending as soon as their job's concurrency limit allows."""
        for job_id in self.database.read(partial(decisions.startable_jobs, region=self.region)):
            try:
                started = self.database.write(partial(decisions.start_queued, job_id=job_id))
            except RaceLost:
                continue  # the next round tries again
            if started:
                self.dispatcher.send(Trigger())


def _groups(due: Sequence[firings.UndecidedFiring]) -> list[dict[int, int]]:
    """Firings in groups for one commit each, earlier ones first, at most one of each job."""
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
        # In the order of job ids, as in every ticker: so two tickers cannot deadlock.
        ordered = sorted(wave.items(), key=lambda item: item[1])
        for start in range(0, len(ordered), DECISIONS_PER_COMMIT):
            groups.append(dict(ordered[start : start + DECISIONS_PER_COMMIT]))
    return groups


def run(settings: Settings) -> None:
    loop = EventLoop()
    database = Database(settings.database)
    schema.require(database)
    ticker = Ticker(settings, loop, database)
    log.info("Ticker ready", action="ready")
    loop.run()
    ticker.dispatcher.close()
    database.close()
