"""Starts, watches and replaces the keeper's runner, and stops runs in it.

A run that must end is asked to stop and reports its stack. If it does not react, its stack is
dumped, then the runner is terminated, then killed with everything that it started. The outcome is
written only after that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import structlog

from actors.event_loop import EventLoop, Timer
from actors.worker.held_tasks import GIVEN_BACK, HeldTask, HeldTasks
from actors.worker.run_stop import PendingStop, StopStage, next_stage
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
LONG_RUN_SECONDS = 0.05
"""A task that runs longer has the tasks that wait behind it taken back."""
DEADLINE_MARGIN = 0.1
"""The dispatcher sends a kill at the deadline; this much later the keeper acts by itself."""
RESTART_SECONDS = 1.0


class RunnerSupervisor:
    """Keeps one runner, and starts another when it ends."""

    def __init__(
        self,
        settings: Settings,
        loop: EventLoop,
        held_tasks: HeldTasks,
        on_ready: Callable[[frames.RunnerReady], None],
    ) -> None:
        self.settings = settings
        self.loop = loop
        self.held_tasks = held_tasks
        self.on_ready = on_ready
        self.runner: RunnerProcess | None = None
        self.is_ready = False
        self.loop_thread = 0
        """The kernel's id of the runner's thread for async tasks."""
        self.closing = False
        """The keeper drains: no further runner is started."""
        self.stops: dict[int, PendingStop] = {}
        self.tick_timer: Timer | None = None
        self.tasks_run = 0
        self.checkpoints = SweepCheckpoints(
            held_tasks, lambda: self.closing, self.kill_and_give_back
        )
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
            folder / str(self.held_tasks.keeper_id),
            self.settings.imports,
            self._handle_frame,
        )

    def end(self) -> None:
        """Kill the runner and remove its black box."""
        self.stops.clear()
        if self.runner is not None:
            self.runner.kill()
            self.runner.close()
            self.runner.black_box.remove()
            self.runner = None

    def run_tasks(self, tasks: Sequence[DueTask]) -> None:
        """Send tasks to the runner's executors. A runner that is not ready gets them later."""
        if self.runner is None or not self.is_ready or not tasks:
            return
        manifest = self.held_tasks.manifest
        if sync_tasks := [task for task in tasks if not manifest[task.key].is_async]:
            self.runner.sync.send_tasks(sync_tasks, self._callbacks(sync_tasks))
        if async_tasks := [task for task in tasks if manifest[task.key].is_async]:
            self.runner.async_.send_tasks(async_tasks, self._callbacks(async_tasks))
        if self.tick_timer is None:
            self.tick_timer = self.loop.call_every(TICK_SECONDS, self._tick)

    def _callbacks(self, tasks: Sequence[DueTask]) -> dict[int, tuple[str, str]]:
        """The callback URL and token of tasks whose handler wants them. The key that makes the
        tokens never reaches a runner."""
        manifest, key = self.held_tasks.manifest, self.held_tasks.callback_key
        return {
            task.id: (self.settings.callback_url(task.id), token_for(key, task.id, task.fence))
            for task in tasks
            if manifest[task.key].callbacks
        }

    def take_back_all(self, killed: int = 0) -> None:
        """Take back and release the tasks that have not started; `killed` was to be killed."""
        if self.runner is None:
            return
        for pipe in (self.runner.sync, self.runner.async_):
            for task_id in pipe.take_back():
                outcome = RunOutcome(RunEnd.KILLED) if task_id == killed else GIVEN_BACK
                self.held_tasks.finish(task_id, outcome)

    # --- frames ----------------------------------------------------------------------------------

    def _handle_frame(self, frame: frames.Frame) -> None:
        match frame:
            case frames.RunEnded():
                self._finish_run(frame)
            case frames.StoreCapture():
                self._store_capture(frame)
            case frames.OpenPartition():
                self.checkpoints.open(frame, self._reply_to_sync_task())
            case frames.StoreCheckpoint():
                self.checkpoints.store(frame, self._reply_to_sync_task())
            case frames.StackReport():
                if frame.task_id in self.stops:
                    self.stops[frame.task_id].stack = frame.text
            case frames.RunnerReady():
                self._runner_ready(frame)

    def _runner_ready(self, frame: frames.RunnerReady) -> None:
        for problem in frame.problems:
            log.error("Handler import failed", action="import_failed", error=problem)
        self.held_tasks.manifest = {spec.key: spec for spec in frame.manifest}
        self.is_ready = True
        self.loop_thread = frame.loop_thread
        self.on_ready(frame)
        self.run_tasks([held.task for held in self.held_tasks.running.values()])

    def _finish_run(self, frame: frames.RunEnded) -> None:
        held = self.held_tasks.running.get(frame.task_id)
        if held is None:
            return
        held.seconds = frame.seconds
        self.tasks_run += 1
        stop = self.stops.pop(frame.task_id, None)
        if frame.stopped:
            outcome = self._stopped_outcome(stop)
        elif frame.ok and held.handler.sweep is not None:
            outcome = self.checkpoints.outcome(frame.text)
        else:
            outcome = _reported_outcome(frame)
        self.held_tasks.finish(frame.task_id, outcome)

    def _reply_to_sync_task(self) -> Callable[[frames.Frame], None]:
        """Replies to the sync task that runs now, unless its runner has been replaced by then."""
        runner = self.runner

        def reply(frame: frames.Frame) -> None:
            if runner is not None and runner is self.runner:
                runner.sync.send(frame)

        return reply

    def _store_capture(self, frame: frames.StoreCapture) -> None:
        """Commit what build_param captured; the handler waits for the reply."""
        held = self.held_tasks.running.get(frame.task_id)
        if held is None or self.runner is None:
            return
        task, runner, keeper_id = held.task, self.runner, self.held_tasks.keeper_id
        pipe = runner.async_ if held.handler.is_async else runner.sync

        def reply(stored: bool) -> None:
            if runner is self.runner:
                pipe.send(frames.CaptureStored(task.id, stored))

        database = self.held_tasks.database
        self.held_tasks.database_thread.submit(
            lambda: runs.capture(
                database, keeper_id, task.id, task.fence, frame.before, frame.after
            ),
            reply,
            lambda error: reply(False),
        )

    # --- the runner's end ------------------------------------------------------------------------

    def reap_children(self) -> None:
        """A child process has ended: the runner, or an orphan that one of its tasks left."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            if self.runner is not None and found.si_pid == self.runner.pid:
                self._runner_ended()
            else:
                os.waitpid(found.si_pid, 0)

    def _runner_ended(self) -> None:
        """Charge the tasks that were running, keep the others, and replace the runner."""
        runner = self.runner
        if runner is None:
            return
        runner.kill()
        runner.read_remaining_frames()
        running = self.held_tasks.running
        started = [entry.task_id for entry in runner.started_tasks() if entry.task_id in running]
        # A sync task that was running is charged with the death; without one, the async tasks are.
        charged = [i for i in started if not running[i].handler.is_async] or started
        stages = [stop.stage for stop in self.stops.values()]
        intended = self.closing or any(stage >= StopStage.TERMINATED for stage in stages)
        for task_id in started:
            if task_id in self.stops:
                outcome = self._stopped_outcome(self.stops[task_id])
            elif intended or task_id not in charged:
                outcome = GIVEN_BACK
            else:
                outcome = self._death(running[task_id], runner.exit_code or 0)
            self.held_tasks.finish(task_id, outcome)
        log.warning("Runner ended", action="runner_ended", exit_code=runner.exit_code,
                    charged=[] if intended else charged)  # fmt: skip
        self._replace()

    @staticmethod
    def _death(held: HeldTask, code: int) -> RunOutcome:
        metrics.deaths.labels(held.task.type).inc()
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
            self.held_tasks.give_back(list(self.held_tasks.running))
        elif was_ready:
            self.start()
        else:
            self.loop.call_later(RESTART_SECONDS, self.start)

    def kill_and_give_back(self) -> None:
        """Kill the runner and give back all its tasks, started or not."""
        if self.runner is None:
            return
        self.runner.kill()
        self.runner.read_remaining_frames()
        self.held_tasks.give_back(list(self.held_tasks.running))
        self._replace()

    def _replace_if_worn(self) -> None:
        """Replace an idle runner that has run many tasks or has grown large."""
        if self.runner is None or not self.is_ready or not self.held_tasks.is_empty():
            return
        max_tasks, max_memory = self.settings.runner_max_tasks, self.settings.runner_max_memory_mb
        if (max_tasks and self.tasks_run >= max_tasks) or (
            max_memory and procfs.memory_mb(self.runner.pid) > max_memory
        ):
            self.runner.kill()
            self._replace()

    # --- deadlines -------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Stop late runs, take back tasks that wait behind a long run, continue pending stops."""
        if not self.held_tasks.running and self.tick_timer is not None:
            self.tick_timer.cancel()
            self.tick_timer = None
            self._replace_if_worn()
            return
        if self.runner is None:
            return
        for held, elapsed in self._started_runs():
            if elapsed > held.task.seconds + DEADLINE_MARGIN:
                self.stop_run(held.task.id, RunEnd.TIMEOUT)
            is_async = held.handler.is_async
            if elapsed > LONG_RUN_SECONDS and not is_async and self.runner is not None:
                self.held_tasks.give_back(self.runner.sync.take_back())
        self._continue_stops()

    def _started_runs(self) -> list[tuple[HeldTask, float]]:
        """The tasks that are executing, and for how many seconds."""
        if self.runner is None:
            return []
        now = time.monotonic_ns()
        return [
            (held, (now - entry.started_ns) / 1e9)
            for entry in self.runner.started_tasks()
            if (held := self.held_tasks.running.get(entry.task_id)) is not None
        ]

    def long_runs(self) -> list[LongRun]:
        """For the dispatcher: long runs and the time left until their deadlines."""
        return [
            LongRun(held.task.id, held.task.fence, held.task.seconds - elapsed)
            for held, elapsed in self._started_runs()
            if elapsed > LONG_RUN_SECONDS
            and held.task.timeout_ms
            and held.task.id not in self.stops
        ]

    # --- stopping a run --------------------------------------------------------------------------

    def stop_run(self, task_id: int, end: RunEnd) -> None:
        """Begin to stop a run; a task that has not started is taken back at once."""
        held = self.held_tasks.running.get(task_id)
        if held is None or task_id in self.stops or self.runner is None:
            return
        if task_id not in {entry.task_id for entry in self.runner.started_tasks()}:
            if end is RunEnd.KILLED:
                self.take_back_all(killed=task_id)
            return
        late = f"timed out after {held.task.seconds:g} s"
        reason = late if end is RunEnd.TIMEOUT else "killed by an operator"
        self.stops[task_id] = PendingStop(end, reason, self.loop.now())
        metrics.kills.labels(end.value).inc()
        log.warning("Stopping run", action="stopping_run", task_id=task_id,
                    batch_id=held.task.batch_id, reason=reason)  # fmt: skip
        self._continue_stops()

    def _continue_stops(self) -> None:
        """Bring each pending stop to its next stage, if that is due."""
        now, grace = self.loop.now(), self.settings.kill_grace
        for task_id, stop in list(self.stops.items()):
            held = self.held_tasks.running.get(task_id)
            if held is None or self.runner is None:
                self.stops.pop(task_id, None)
                continue
            is_async = held.handler.is_async
            stage = next_stage(stop.stage, (now - stop.started) / grace)
            stop.stage = stop.stage if stage is None else stage
            match stage:
                case StopStage.REQUESTED if is_async:
                    self.runner.async_.send(frames.CancelTask(task_id))
                case StopStage.REQUESTED:
                    self.runner.interrupt_sync_task()
                case StopStage.STACK_DUMPED if not stop.stack:
                    self.runner.dump_stack(self.loop_thread if is_async else self.runner.pid)
                case StopStage.TERMINATED:
                    self.runner.terminate()
                case StopStage.KILLED:
                    self._runner_ended()
                    return

    def _stopped_outcome(self, stop: PendingStop | None) -> RunOutcome:
        if stop is None or self.runner is None:
            return GIVEN_BACK
        was_dumped = stop.stage >= StopStage.STACK_DUMPED
        stack = stop.stack or (self.runner.dumped_stack() if was_dumped else "")
        return RunOutcome(stop.end, info=f"{stop.reason}\n{stack}".strip())


def _reported_outcome(frame: frames.RunEnded) -> RunOutcome:
    """The outcome of a run that ended by itself."""
    if (seconds := frame.callback_timeout) is not None:
        return RunOutcome(RunEnd.WAITING, result=frame.text, callback_timeout=seconds)
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
        retry_after=frame.failure.retry_after,
    )
