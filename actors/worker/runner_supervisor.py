"""A keeper's bench: its runner, what runs there, and how a run is stopped.

A run that must end climbs a ladder: it is asked, and says where it was; if it does not hear, the
stack that it is stuck in is written; it is terminated; it is killed, with everything that it
started. Only then is it over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from actors.event_loop import EventLoop, Timer
from actors.worker.held_tasks import HeldTask, HeldTasks
from actors.worker.runner_process import RunnerProcess
from actors.worker.sweep_checkpoints import SweepCheckpoints
from drumline.config import Settings
from drumline.domain.release import RunEnd, RunOutcome
from drumline.domain.task import DueTask
from drumline.runner import frames
from drumline.store.job.callbacks import token_for
from drumline.store.task import runs
from drumline.system import processes, procfs
from drumline.telemetry import metrics
from protocol.messages import LongRun

log = structlog.get_logger()

TICK_SECONDS = 0.05
PATIENCE = 0.05
"""A task that runs longer than this has what waits behind it taken back."""
KILL_MARGIN = 0.1
"""The dispatcher sends the kill at the deadline; this much later the keeper acts without it."""
RESTART_SECONDS = 1.0
ASKED, DUMPED, TERMINATED = 1, 2, 3
"""The rungs of the ladder below the last; its whole height is the grace."""


@dataclass(slots=True)
class PendingStop:
    """A run that is being stopped, and how far up the ladder it is."""

    end: RunEnd
    reason: str
    began: float
    rung: int = 0
    stack: str = ""
    """Where it was when it was asked."""


class RunnerSupervisor:
    """Has one runner at a time, and a new one after each death."""

    def __init__(
        self,
        settings: Settings,
        loop: EventLoop,
        ledger: HeldTasks,
        ready: Callable[[frames.RunnerReady], None],
    ) -> None:
        self.settings = settings
        self.loop = loop
        self.ledger = ledger
        self.ready = ready
        self.runner: RunnerProcess | None = None
        self.is_ready = False
        self.loop_thread = 0
        self.closing = False
        self.stops: dict[int, PendingStop] = {}
        self.ticking: Timer | None = None
        self.tasks_run = 0
        self.parts = SweepCheckpoints(ledger, lambda: self.closing, self.abandon)
        processes.become_subreaper()

    # --- the runner ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a runner for the keeper's present incarnation."""
        folder = self.settings.run_path / "running"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.is_ready = False
        self.tasks_run = 0
        self.runner = RunnerProcess(
            self.loop,
            folder / str(self.ledger.keeper_id),
            self.settings.imports,
            self._received,
        )

    def end(self) -> None:
        """Kill the runner, and leave no trace of it."""
        self.stops.clear()
        if self.runner is not None:
            self.runner.kill()
            self.runner.close()
            self.runner.box.remove()
            self.runner = None

    def hand(self, dues: Sequence[DueTask]) -> None:
        """Give tasks to the runner, each to its lane. One that is not ready gets them later."""
        if self.runner is None or not self.is_ready or not dues:
            return
        manifest = self.ledger.manifest
        if quick := [due for due in dues if not manifest[due.key].is_async]:
            self.runner.sync.hand(quick, self._callbacks(quick))
        if loops := [due for due in dues if manifest[due.key].is_async]:
            self.runner.async_.hand(loops, self._callbacks(loops))
        if self.ticking is None:
            self.ticking = self.loop.call_every(TICK_SECONDS, self._tick)

    def _callbacks(self, dues: Sequence[DueTask]) -> dict[int, tuple[str, str]]:
        """Where, and with which token, those can be called back whose handler asks for it. The
        key that makes tokens never reaches a runner."""
        manifest, key = self.ledger.manifest, self.ledger.callback_key
        return {
            due.id: (self.settings.callback_url(due.id), token_for(key, due.id, due.fence))
            for due in dues
            if manifest[due.key].callbacks
        }

    def take_back_all(self, killed: int = 0) -> None:
        """Take back whatever has not started."""
        if self.runner is None:
            return
        for lane in (self.runner.sync, self.runner.async_):
            for task_id in lane.take_back():
                end = RunEnd.KILLED if task_id == killed else RunEnd.GIVEN_BACK
                self.ledger.ended(task_id, RunOutcome(end))

    def _received(self, frame: frames.Frame) -> None:
        match frame:
            case frames.RunEnded():
                self._run_ended(frame)
            case frames.StoreCapture():
                self._capture(frame)
            case frames.OpenPartition():
                self.parts.open(frame, self._answer())
            case frames.StoreCheckpoint():
                self.parts.flush(frame, self._answer())
            case frames.StackReport():
                if frame.task_id in self.stops:
                    self.stops[frame.task_id].stack = frame.text
            case frames.RunnerReady():
                self._started(frame)

    def _started(self, frame: frames.RunnerReady) -> None:
        for problem in frame.problems:
            log.error("Handlers could not be imported.", action="import_failed", error=problem)
        self.ledger.manifest = {spec.key: spec for spec in frame.manifest}
        self.is_ready = True
        self.loop_thread = frame.loop_thread
        self.ready(frame)
        self.hand([hold.due for hold in self.ledger.holds.values()])

    def _run_ended(self, frame: frames.RunEnded) -> None:
        hold = self.ledger.holds.get(frame.task_id)
        if hold is None:
            return
        hold.seconds = frame.seconds
        self.tasks_run += 1
        stop = self.stops.pop(frame.task_id, None)
        if frame.stopped:
            outcome = self._stop_outcome(stop)
        elif frame.ok and hold.handler.sweep is not None:
            outcome = self.parts.outcome(frame.text)
        else:
            outcome = _outcome(frame)
        self.ledger.ended(frame.task_id, outcome)

    def _answer(self) -> Callable[[frames.Frame], None]:
        """Answers the sync task that runs now, if its runner is still there by then."""
        runner = self.runner

        def answer(frame: frames.Frame) -> None:
            if runner is not None and runner is self.runner:
                runner.sync.send(frame)

        return answer

    def _capture(self, frame: frames.StoreCapture) -> None:
        """Commit what a handler found before it goes on."""
        hold = self.ledger.holds.get(frame.task_id)
        if hold is None or self.runner is None:
            return
        due, runner, keeper_id = hold.due, self.runner, self.ledger.keeper_id
        lane = runner.async_ if hold.handler.is_async else runner.sync

        def answer(ours: bool) -> None:
            if runner is self.runner:
                lane.send(frames.CaptureStored(due.id, ours))

        self.ledger.thread.submit(
            lambda: runs.capture(
                self.ledger.database, keeper_id, due.id, due.fence, frame.before, frame.after
            ),
            answer,
            lambda error: answer(False),
        )

    # --- death -----------------------------------------------------------------------------------

    def child_died(self) -> None:
        """A child is dead: the runner, or an orphan of one of its tasks that came to us."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            if self.runner is not None and found.si_pid == self.runner.pid:
                self._runner_died()
            else:
                os.waitpid(found.si_pid, 0)

    def _runner_died(self) -> None:
        """Charge those that were running, keep the others, and start anew."""
        runner = self.runner
        if runner is None:
            return
        runner.kill()
        runner.drain()
        holds = self.ledger.holds
        started = [entry.task_id for entry in runner.running() if entry.task_id in holds]
        # A sync task in the main thread is the suspect; the loop's tasks were bystanders.
        guilty = [i for i in started if not holds[i].handler.is_async] or started
        wanted = self.closing or any(stop.rung >= TERMINATED for stop in self.stops.values())
        for task_id in started:
            if task_id in self.stops:
                outcome = self._stop_outcome(self.stops[task_id])
            elif wanted or task_id not in guilty:
                outcome = RunOutcome(RunEnd.GIVEN_BACK)
            else:
                outcome = self._death(holds[task_id], runner.exit_code or 0)
            self.ledger.ended(task_id, outcome)
        log.warning(
            "The runner died.",
            action="runner_died",
            exit_code=runner.exit_code,
            charged=[] if wanted else guilty,
        )
        self._replace()

    @staticmethod
    def _death(hold: HeldTask, code: int) -> RunOutcome:
        metrics.deaths.labels(hold.due.type).inc()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return RunOutcome(RunEnd.DIED, info=f"the worker died under this task: {how}")

    def _replace(self) -> None:
        if self.runner is None:
            return
        was_ready = self.is_ready
        self.runner.close()
        self.runner = None
        self.stops.clear()
        if self.closing:
            self.ledger.give_back(list(self.ledger.holds))
        elif was_ready:
            self.start()
        else:
            self.loop.call_later(RESTART_SECONDS, self.start)

    def abandon(self) -> None:
        """Kill the runner and give back all that it had, started or not."""
        if self.runner is None:
            return
        self.runner.kill()
        self.runner.drain()
        self.ledger.give_back(list(self.ledger.holds))
        self._replace()

    # --- time ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Hold the deadlines, take back what waits behind a slow task, climb the ladder."""
        if not self.ledger.holds and self.ticking is not None:
            self.ticking.cancel()
            self.ticking = None
            self._renew_if_worn()
            return
        if self.runner is None:
            return
        for hold, elapsed in self._started_runs():
            if elapsed > hold.due.seconds + KILL_MARGIN:
                self.stop(hold.due.id, RunEnd.TIMEOUT)
            if elapsed > PATIENCE and not hold.handler.is_async and self.runner is not None:
                self.ledger.give_back(self.runner.sync.take_back())
        self._climb()

    def _started_runs(self) -> list[tuple[HeldTask, float]]:
        """What runs, and for how many seconds."""
        if self.runner is None:
            return []
        now = time.monotonic_ns()
        return [
            (hold, (now - entry.started_ns) / 1e9)
            for entry in self.runner.running()
            if (hold := self.ledger.holds.get(entry.task_id)) is not None
        ]

    def long_runs(self) -> list[LongRun]:
        """For the dispatcher: what has been running for a while, and how long it still may."""
        return [
            LongRun(hold.due.id, hold.due.fence, hold.due.seconds - elapsed)
            for hold, elapsed in self._started_runs()
            if elapsed > PATIENCE and hold.due.timeout_ms and hold.due.id not in self.stops
        ]

    def _renew_if_worn(self) -> None:
        """Replace a runner that has run many tasks or has grown large, while it is idle."""
        if self.runner is None or not self.is_ready or not self.ledger.is_empty():
            return
        most, memory = self.settings.runner_max_tasks, self.settings.runner_max_memory_mb
        if (most and self.tasks_run >= most) or (
            memory and procfs.memory_mb(self.runner.pid) > memory
        ):
            self.runner.kill()
            self._replace()

    # --- the ladder ------------------------------------------------------------------------------

    def stop(self, task_id: int, end: RunEnd) -> None:
        """Begin to stop a run; or take it back at once if it has not started."""
        hold = self.ledger.holds.get(task_id)
        if hold is None or task_id in self.stops or self.runner is None:
            return
        if task_id not in {entry.task_id for entry in self.runner.running()}:
            if end is RunEnd.KILLED:
                self.take_back_all(killed=task_id)
            return
        late = f"timed out after {hold.due.seconds:g} s"
        reason = late if end is RunEnd.TIMEOUT else "killed by an operator"
        self.stops[task_id] = PendingStop(end, reason, self.loop.now())
        metrics.kills.labels(end.value).inc()
        log.warning(
            "A run is being stopped.",
            action="stopping_run",
            task_id=task_id,
            batch_id=hold.due.batch_id,
            reason=reason,
        )
        self._climb()

    def _climb(self) -> None:
        now, grace = self.loop.now(), self.settings.kill_grace
        for task_id, stop in list(self.stops.items()):
            hold = self.ledger.holds.get(task_id)
            if hold is None or self.runner is None:
                self.stops.pop(task_id, None)
                continue
            patience = (now - stop.began) / grace
            if stop.rung < ASKED:
                stop.rung = ASKED
                if hold.handler.is_async:
                    self.runner.async_.send(frames.CancelTask(task_id))
                else:
                    self.runner.ask()
            elif stop.rung < DUMPED and patience > 0.4:
                stop.rung = DUMPED
                if not stop.stack:  # it did not hear us: it is stuck
                    is_async = hold.handler.is_async
                    self.runner.dump(self.loop_thread if is_async else self.runner.pid)
            elif stop.rung < TERMINATED and patience > 0.5:
                stop.rung = TERMINATED
                self.runner.terminate()
            elif patience > 1:
                self._runner_died()
                return

    def _stop_outcome(self, stop: PendingStop | None) -> RunOutcome:
        if stop is None or self.runner is None:
            return RunOutcome(RunEnd.GIVEN_BACK)
        stack = stop.stack or (self.runner.stack() if stop.rung >= DUMPED else "")
        return RunOutcome(stop.end, info=f"{stop.reason}\n{stack}".strip())


def _outcome(frame: frames.RunEnded) -> RunOutcome:
    """What a run that was not stopped says of itself."""
    if frame.wait is not None:
        return RunOutcome(RunEnd.WAITING, result=frame.text, wait=frame.wait)
    if frame.ok:
        return RunOutcome(RunEnd.SUCCESS, result=frame.text)
    if frame.failure is None:
        return RunOutcome(RunEnd.ERROR, info=frame.text)
    return RunOutcome(
        RunEnd.ERROR,
        info=frame.text,
        result=frame.failure.result,
        final=frame.failure.final,
        cause=frame.failure.cause,
        wait=frame.failure.wait,
    )
