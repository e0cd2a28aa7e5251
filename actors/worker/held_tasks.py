"""The tasks that a keeper has acquired and not yet released, and the writes that do both.

Tasks that arrive or end during a commit are written with the next one, so a busier database gets
larger groups. Finished runs are released when no task is left to run, when enough have finished,
or after a few milliseconds; the more tasks are running, the longer that wait is.
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
from drumline.domain.sweeps.definition import PARTITION_TARGET_TYPE
from drumline.domain.task import DueTask
from drumline.errors import DrumlineError
from drumline.store.database import Database
from drumline.store.job import callbacks
from drumline.store.task import runs
from drumline.telemetry import metrics
from protocol.messages import Timing

log = structlog.get_logger()

RELEASE_SECONDS = 0.005
RELEASE_SECONDS_PER_TASK = 0.0001
"""Added to the wait for each task that is still running."""
MAX_RELEASE_SECONDS = 0.05
GIVEN_BACK = RunOutcome(RunEnd.GIVEN_BACK)


@dataclass(slots=True)
class HeldTask:
    """A task this keeper has acquired and not yet released."""

    task: DueTask
    handler: HandlerSpec
    started_at: int
    seconds: float = 0.0
    outcome: RunOutcome = GIVEN_BACK


ReportReleased = Callable[[Sequence[int], int, Sequence[Timing]], None]
"""Called with the tasks that are no longer held, how many of them ran, and their run times."""


class HeldTasks:
    """The held tasks of one keeper; cleared when it registers again."""

    def __init__(
        self,
        settings: Settings,
        worker: str,
        loop: EventLoop,
        database: Database,
        database_thread: DatabaseThread,
        report_released: ReportReleased,
        on_acquired: Callable[[Sequence[DueTask]], None],
        on_acquire_failed: Callable[[Exception], None],
    ) -> None:
        self.settings = settings
        self.worker = worker
        self.loop = loop
        self.database = database
        self.database_thread = database_thread
        self.report_released = report_released
        self.on_acquired = on_acquired
        self.on_acquire_failed = on_acquire_failed
        self.limits = RetryLimits(settings.timeout_retries, settings.deaths_allowed)
        self.keeper_id = 0
        self.callback_key = b""
        self.manifest: dict[str, HandlerSpec] = {}
        self.running: dict[int, HeldTask] = {}
        """Acquired tasks whose run has not finished, started or not."""
        self.finished: list[HeldTask] = []
        """Tasks whose run is over, for the next release."""
        self.being_written: dict[int, DueTask] = {}
        """Tasks of which an acquire or a release is waiting for the database."""
        self.to_acquire: list[DueTask] = []
        self.acquiring = False
        self.releases = 0
        """Releases that wait for the database."""
        self.release_timer: Timer | None = None

    def ids(self) -> tuple[int, ...]:
        """Every task that this keeper holds, is acquiring, or is releasing."""
        return (*self.being_written, *self.running, *(held.task.id for held in self.finished))

    def partition_ids(self) -> tuple[int, ...]:
        """Those of them that are partitions of sweeps."""
        tasks = [*self.being_written.values(), *(held.task for held in self.running.values())]
        tasks += [held.task for held in self.finished]
        return tuple(task.id for task in tasks if task.target_type == PARTITION_TARGET_TYPE)

    def is_empty(self) -> bool:
        return not (self.running or self.finished or self.being_written)

    def clear(self) -> int:
        """Drop every task: they belong to other keepers. Returns how many had been acquired."""
        dropped = len(self.running) + len(self.finished)
        self.running.clear()
        self.finished.clear()
        self._written(self.to_acquire)
        self.to_acquire.clear()
        return dropped

    # --- acquire ---------------------------------------------------------------------------------

    def acquire(self, tasks: Sequence[DueTask]) -> None:
        """Acquire as many of these tasks as possible, then call `on_acquired` with them."""
        self.being_written.update((task.id, task) for task in tasks)
        self.to_acquire += tasks
        if not self.acquiring:
            self._acquire()

    def _acquire(self) -> None:
        tasks, self.to_acquire = self.to_acquire, []
        self.acquiring = bool(tasks)
        if not tasks:
            return
        keeper_id = self.keeper_id

        def succeeded(acquired: Sequence[DueTask]) -> None:
            self._written(tasks)
            now = self.database.now()
            for task in acquired:
                self.running[task.id] = HeldTask(task, self.manifest[task.key], now)
            lost = {task.id for task in tasks} - {task.id for task in acquired}
            if lost:
                self.report_released(sorted(lost), 0, ())
            self.on_acquired(acquired)
            self._acquire()

        def failed(error: Exception) -> None:
            self._written(tasks)
            self.report_released([task.id for task in tasks], 0, ())
            self.on_acquire_failed(error)
            self._acquire()

        self.database_thread.submit(
            lambda: runs.acquire(self.database, keeper_id, tasks), succeeded, failed
        )

    def _written(self, tasks: Sequence[DueTask]) -> None:
        for task in tasks:
            self.being_written.pop(task.id, None)

    # --- release ---------------------------------------------------------------------------------

    def finish(self, task_id: int, outcome: RunOutcome) -> None:
        """A run is over: its outcome is written with the next group."""
        held = self.running.pop(task_id, None)
        if held is None:
            return
        held.outcome = outcome
        self.finished.append(held)
        if not self.running or len(self.finished) >= self.settings.bundle_max:
            self.release()
        elif self.release_timer is None:
            wait = max(RELEASE_SECONDS, RELEASE_SECONDS_PER_TASK * len(self.running))
            self.release_timer = self.loop.call_later(min(wait, MAX_RELEASE_SECONDS), self.release)

    def give_back(self, task_ids: Sequence[int]) -> None:
        for task_id in task_ids:
            self.finish(task_id, GIVEN_BACK)

    def release(self) -> None:
        """Write the outcomes of all finished runs, unless a release is under way."""
        if self.release_timer is not None:
            self.release_timer.cancel()
            self.release_timer = None
        if self.finished and not self.releases:
            group, self.finished = self.finished, []
            self.being_written.update((held.task.id, held.task) for held in group)
            self._release(group)

    def _release(self, group: list[HeldTask]) -> None:
        self.releases += 1
        keeper_id = self.keeper_id
        finished = [self._finished_run(held) for held in group]
        waiting = [run.id for run in finished if run.outcome.end is RunEnd.WAITING]

        def write() -> list[int]:
            lost = runs.release(self.database, keeper_id, finished, self.limits, random.random())
            if waiting:
                self._settle_early_callbacks(waiting)
            return lost

        def over(follow_up: Callable[[], None]) -> None:
            self.releases -= 1
            follow_up()
            self.release()

        self.database_thread.submit(
            write,
            lambda lost: over(lambda: self._released(group, lost)),
            lambda error: over(lambda: self._not_released(group, error)),
        )

    def _settle_early_callbacks(self, waiting: list[int]) -> None:
        """A callback may have come before its run began to wait for it."""
        try:
            callbacks.apply_kept(self.database, waiting, self.limits)
        except DrumlineError as error:  # the reaper settles them a moment later
            log.warning("Early callbacks not settled", action="settle_failed", error=str(error))

    def _finished_run(self, held: HeldTask) -> FinishedRun:
        task = held.task
        return FinishedRun(
            id=task.id,
            fence=task.fence,
            status=ACQUIRED[task.status],
            batch_id=task.batch_id,
            attempt=task.attempt + 1,
            retry_time=task.retry_time,
            failures=task.failures,
            deaths=task.deaths,
            due_at=task.due_at,
            retry=task.retry,
            is_job_run=task.job_id is not None,
            outcome=held.outcome,
            handler=held.handler,
            worker=self.worker,
            started_at=held.started_at,
        )

    def _released(self, group: list[HeldTask], lost: Sequence[int]) -> None:
        if lost:
            metrics.fenced.inc(len(lost))
            log.warning("Outcomes refused: the tasks belong to other keepers", action="fenced",
                        task_ids=list(lost))  # fmt: skip
        self._written([held.task for held in group])
        ran = [held for held in group if held.outcome.end is not RunEnd.GIVEN_BACK]
        _count_runs(group, ran)
        seconds: dict[str, list[float]] = {}
        for held in ran:
            seconds.setdefault(held.task.key, []).append(held.seconds)
        timings = [Timing(key, len(each), sum(each)) for key, each in seconds.items()]
        self.report_released([held.task.id for held in group], len(ran), timings)

    def _not_released(self, group: list[HeldTask], error: Exception) -> None:
        """The database refuses the group: bisect it, so that one bad result affects no other."""
        if len(group) > 1:
            middle = len(group) // 2
            self._release(group[:middle])
            self._release(group[middle:])
            return
        (held,) = group
        log.error("Outcome could not be stored", action="release_failed", task_id=held.task.id,
                  error=str(error))  # fmt: skip
        refused = RunOutcome(RunEnd.ERROR, info=f"the outcome could not be stored: {error}"[:500])
        if held.outcome == refused:
            self._written([held.task])  # the check for untracked tasks gives it back
        else:
            held.outcome = refused
            self._release([held])


def _count_runs(group: Sequence[HeldTask], ran: Sequence[HeldTask]) -> None:
    """Add to the metrics: one call per kind of run is cheaper than one per run."""
    ends = Counter((held.task.env or "", held.task.type, held.outcome.end.value) for held in group)
    for labels, n in ends.items():
        metrics.tasks.labels(*labels).inc(n)
    seconds: dict[tuple[str, str], float] = {}
    for held in ran:
        where = (held.task.env or "", held.task.type)
        seconds[where] = seconds.get(where, 0.0) + held.seconds
    for where, spent in seconds.items():
        metrics.execution_seconds.labels(*where).inc(spent)
