"""A keeper's ledger: what it has acquired and not yet released, and the writes in between.

Whatever comes while a commit is on its way goes into the next one, so the busier the database is,
the larger the groups are. Runs that are over are released when nothing is left to run, when there
are enough, or after some milliseconds: the longer, the more is still under way.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from actors.event_loop import EventLoop, Timer
from actors.worker.database_thread import DatabaseThread
from drumline.config import Settings
from drumline.domain.policy import HandlerSpec
from drumline.domain.release import FinishedRun, RetryLimits, RunEnd, RunOutcome
from drumline.domain.states import ACQUIRED
from drumline.domain.sweeps.sweep import PARTITION_TARGET_TYPE
from drumline.domain.task import DueTask
from drumline.errors import DrumlineError
from drumline.store.database import Database
from drumline.store.job import callbacks
from drumline.store.task import runs
from drumline.telemetry import metrics
from protocol.messages import Timing

log = structlog.get_logger()

FLUSH_SECONDS = 0.005
FLUSH_SECONDS_EACH = 0.0001
"""For each run that is still under way."""
FLUSH_SECONDS_MOST = 0.05


@dataclass(slots=True)
class HeldTask:
    """A task this keeper has acquired and not yet released."""

    due: DueTask
    handler: HandlerSpec
    started_at: int
    seconds: float = 0.0


@dataclass(slots=True)
class EndedRun:
    """A run that is over, waiting to be written."""

    hold: HeldTask
    outcome: RunOutcome


Report = Callable[[Sequence[int], int, Sequence[Timing]], None]
"""Told which tasks have left our hands, how many of them ran, and how long they took."""


class HeldTasks:
    """One keeper's; cleared when it begins a new incarnation."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        loop: EventLoop,
        database: Database,
        thread: DatabaseThread,
        report: Report,
        acquired: Callable[[Sequence[DueTask]], None],
        not_acquired: Callable[[Exception], None],
    ) -> None:
        self.settings = settings
        self.name = name
        self.loop = loop
        self.database = database
        self.thread = thread
        self.report = report
        self.acquired = acquired
        self.not_acquired = not_acquired
        self.limits = RetryLimits(settings.timeout_retries, settings.deaths_allowed)
        self.keeper_id = 0
        self.callback_key = b""
        self.manifest: dict[str, HandlerSpec] = {}
        self.holds: dict[int, HeldTask] = {}
        self.endings: list[EndedRun] = []
        self.at_database: dict[int, DueTask] = {}
        self.wanted: list[DueTask] = []
        self.acquiring = False
        self.releasing = 0
        self.flush_timer: Timer | None = None

    def held_ids(self) -> tuple[int, ...]:
        """Everything that is in our hands in one way or another."""
        return (*self.at_database, *self.holds, *(e.hold.due.id for e in self.endings))

    def held_parts(self) -> tuple[int, ...]:
        """Those of them that are partitions of sweeps."""
        dues = [*self.at_database.values(), *(hold.due for hold in self.holds.values())]
        dues += [ending.hold.due for ending in self.endings]
        return tuple(due.id for due in dues if due.target_type == PARTITION_TARGET_TYPE)

    def is_empty(self) -> bool:
        return not (self.holds or self.endings or self.at_database)

    def clear(self) -> int:
        """Drop everything: it belongs to others now. Returns how many runs that were."""
        lost = len(self.holds) + len(self.endings)
        self.holds.clear()
        self.endings.clear()
        self._back_from_database(self.wanted)
        self.wanted.clear()
        return lost

    # --- acquire ---------------------------------------------------------------------------------

    def acquire(self, dues: Sequence[DueTask]) -> None:
        """Take what can be taken of these, and call back with it."""
        self.at_database.update((due.id, due) for due in dues)
        self.wanted += dues
        if not self.acquiring:
            self._acquire()

    def _acquire(self) -> None:
        dues, self.wanted = self.wanted, []
        self.acquiring = bool(dues)
        if not dues:
            return
        keeper_id = self.keeper_id

        def over(won: Sequence[DueTask]) -> None:
            self._back_from_database(dues)
            now = self.database.now()
            for due in won:
                self.holds[due.id] = HeldTask(due, self.manifest[due.key], now)
            lost = {due.id for due in dues} - {due.id for due in won}
            if lost:
                self.report(sorted(lost), 0, ())
            self.acquired(won)
            self._acquire()

        def refused(error: Exception) -> None:
            self._back_from_database(dues)
            self.report([due.id for due in dues], 0, ())
            self.not_acquired(error)
            self._acquire()

        self.thread.submit(lambda: runs.acquire(self.database, keeper_id, dues), over, refused)

    def _back_from_database(self, dues: Sequence[DueTask]) -> None:
        for due in dues:
            self.at_database.pop(due.id, None)

    # --- release ---------------------------------------------------------------------------------

    def ended(self, task_id: int, outcome: RunOutcome) -> None:
        """A run is over: it will be written with the next group."""
        hold = self.holds.pop(task_id, None)
        if hold is None:
            return
        self.endings.append(EndedRun(hold, outcome))
        if not self.holds or len(self.endings) >= self.settings.bundle_max:
            self.flush()
        elif self.flush_timer is None:
            patience = max(FLUSH_SECONDS, FLUSH_SECONDS_EACH * len(self.holds))
            self.flush_timer = self.loop.call_later(min(patience, FLUSH_SECONDS_MOST), self.flush)

    def give_back(self, task_ids: Sequence[int]) -> None:
        for task_id in task_ids:
            self.ended(task_id, RunOutcome(RunEnd.GIVEN_BACK))

    def flush(self) -> None:
        if self.flush_timer is not None:
            self.flush_timer.cancel()
            self.flush_timer = None
        if self.endings and not self.releasing:
            group, self.endings = self.endings, []
            self.at_database.update((e.hold.due.id, e.hold.due) for e in group)
            self._release(group)

    def _release(self, group: list[EndedRun]) -> None:
        self.releasing += 1
        keeper_id = self.keeper_id
        ended = [self._as_row(ending) for ending in group]
        waiting = [run.id for run in ended if run.outcome.end is RunEnd.WAITING]

        def work() -> list[int]:
            lost = runs.release(self.database, keeper_id, ended, self.limits, random.random())
            if waiting:
                self._settle_early(waiting)
            return lost

        def over(write_down: Callable[[], None]) -> None:
            self.releasing -= 1
            write_down()
            self.flush()

        self.thread.submit(
            work,
            lambda lost: over(lambda: self._released(group, lost)),
            lambda error: over(lambda: self._not_released(group, error)),
        )

    def _settle_early(self, waiting: list[int]) -> None:
        """Callbacks may have come before the runs began to wait for them."""
        try:
            callbacks.settle_kept(self.database, waiting, self.limits)
        except DrumlineError as error:  # the reaper does it then, a moment later
            log.warning(
                "Early callbacks could not be settled.", action="settle_failed", error=str(error)
            )

    def _as_row(self, ending: EndedRun) -> FinishedRun:
        due = ending.hold.due
        return FinishedRun(
            id=due.id,
            fence=due.fence,
            status=ACQUIRED[due.status],
            batch_id=due.batch_id,
            attempt=due.attempt + 1,
            retry_time=due.retry_time,
            failures=due.failures,
            deaths=due.deaths,
            due_at=due.due_at,
            retry=due.retry,
            is_job_run=due.job_id is not None,
            outcome=ending.outcome,
            handler=ending.hold.handler,
            worker=self.name,
            started_at=ending.hold.started_at,
        )

    def _released(self, group: list[EndedRun], lost: Sequence[int]) -> None:
        if lost:
            metrics.fenced.inc(len(lost))
            log.warning(
                "Writes of runs that are no longer ours were refused.",
                action="fenced",
                task_ids=list(lost),
            )
        ids = [ending.hold.due.id for ending in group]
        self._back_from_database([ending.hold.due for ending in group])
        ran = [ending for ending in group if ending.outcome.end is not RunEnd.GIVEN_BACK]
        _count(group, ran)
        timings: dict[str, list[float]] = {}
        for ending in ran:
            timings.setdefault(ending.hold.due.key, []).append(ending.hold.seconds)
        self.report(
            ids, len(ran), [Timing(key, len(spent), sum(spent)) for key, spent in timings.items()]
        )

    def _not_released(self, group: list[EndedRun], error: Exception) -> None:
        """The database refuses the group: halve it, so that one bad result takes no other along."""
        if len(group) > 1:
            middle = len(group) // 2
            self._release(group[:middle])
            self._release(group[middle:])
            return
        ending = group[0]
        log.error(
            "A result could not be stored.",
            action="release_failed",
            task_id=ending.hold.due.id,
            error=str(error),
        )
        refused = RunOutcome(RunEnd.ERROR, info=f"the outcome could not be stored: {error}"[:500])
        if ending.outcome == refused:
            self._back_from_database([ending.hold.due])  # the look for strays gives it back
        else:
            self._release([EndedRun(ending.hold, refused)])


def _count(group: Sequence[EndedRun], ran: Sequence[EndedRun]) -> None:
    """Metrics in bulk: one call a kind of run, not one a run."""
    ends = Counter(
        (ending.hold.due.env or "", ending.hold.due.type, ending.outcome.end.value)
        for ending in group
    )
    for labels, n in ends.items():
        metrics.tasks.labels(*labels).inc(n)
    seconds: dict[tuple[str, str], float] = {}
    for ending in ran:
        where = (ending.hold.due.env or "", ending.hold.due.type)
        seconds[where] = seconds.get(where, 0.0) + ending.hold.seconds
    for where, spent in seconds.items():
        metrics.execution_seconds.labels(*where).inc(spent)
