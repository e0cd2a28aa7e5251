"""Runs sync tasks, one at a time."""

from __future__ import annotations

import select
import signal
import time
from collections import deque
from types import FrameType
from typing import TYPE_CHECKING

from drumline.domain.sweeps.partition import PartitionInfo, PartitionResult
from drumline.domain.task import DueTask
from drumline.handlers.base import STOP_SIGNAL, RegisteredHandler
from drumline.handlers.registry import Registry
from drumline.runner import stacks
from drumline.runner.assigned_tasks import AssignedTasks
from drumline.runner.blackbox import BlackBox
from drumline.runner.execute import (
    RUN_LOST,
    RunLost,
    Stopped,
    encode_result,
    failure_details,
    format_error,
    run_steps,
    task_steps,
    unpack_result,
)
from drumline.runner.frames import (
    CaptureStored,
    Channel,
    ForgetTasks,
    Frame,
    OpenPartition,
    PartitionOpened,
    RunEnded,
    RunTasks,
    StackReport,
    StoreCapture,
    read_ticket,
)
from drumline.task import Task

if TYPE_CHECKING:
    from drumline.runner.sweep.partition_run import PartitionRun


class SyncExecutor:
    """Runs in the main thread, because only there a signal can interrupt the handler."""

    def __init__(self, registry: Registry, channel: Channel, tickets: int, box: BlackBox) -> None:
        self.registry = registry
        self.channel = channel
        self.tickets = tickets
        self.box = box
        self.assigned = AssignedTasks()
        self.replies: deque[Frame] = deque()
        self.task_id = 0
        self.interruptible = False
        """The handler's code is running, so the stop signal may raise an exception."""
        self.stop_requested = False
        """The keeper has asked the present task to stop."""
        self.partition_run: PartitionRun | None = None
        signal.signal(STOP_SIGNAL, self._on_stop_signal)

    def run(self) -> None:
        """Run tasks until the keeper closes its end of the channel."""
        # Only its ticket lets a task start. The keeper writes the frame that describes the task
        # first, but the ticket may be read before it: then wait for the frame.
        while self._wait():
            while (ticket := read_ticket(self.tickets)) is not None:
                while not self.assigned.has(ticket):
                    if not self._read():
                        return
                self._run(self.assigned.take(ticket))

    def _wait(self) -> bool:
        end = self.channel.end.fileno()
        readable, _, _ = select.select([end, self.tickets], [], [])
        return self._read() if end in readable else True

    def _read(self) -> bool:
        """Read frames; False if the keeper has closed its end."""
        frames = self.channel.receive()
        if frames is None:
            return False
        for frame in frames:
            if isinstance(frame, RunTasks):
                self.assigned.add(frame)
            elif isinstance(frame, ForgetTasks):
                self.assigned.forget(frame)
            else:
                self.replies.append(frame)
        return True

    def _run(self, due_task: DueTask) -> None:
        callback = self.assigned.take_callback(due_task.id)
        started = time.monotonic_ns()
        self.stop_requested = False
        self.task_id = due_task.id
        self.replies.clear()  # replies to an earlier task that was stopped before they came
        self.box.record(0, due_task.id, started)
        ok, text, wait, failure = False, None, None, None
        try:
            try:
                self.interruptible = True
                task, registered = Task(due_task, callback), self.registry[due_task.key]
                if registered.spec.sweep is not None:
                    result: object = self._run_partition(task, registered)
                else:
                    steps = task_steps(
                        task, registered, lambda b, a: self._store_capture(due_task.id, b, a)
                    )
                    result, wait = unpack_result(run_steps(steps), task, registered)
                text = encode_result(result)
                ok = True
            finally:
                # The last line that the stop signal may interrupt.
                self.interruptible = False
        except Stopped:
            pass  # raised after the last line of the handler, it does not undo the result
        except RunLost:
            text = RUN_LOST
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: a handler that calls exit() fails its task.
            text, failure = format_error(error), failure_details(error)
        seconds = (time.monotonic_ns() - started) / 1e9
        stopped = self.stop_requested and not ok
        self.channel.send(RunEnded(due_task.id, seconds, ok, text, stopped, wait, failure))
        self.box.erase(0)

    def _run_partition(self, task: Task, registered: RegisteredHandler) -> PartitionResult:
        """Run a partition of a sweep. Meanwhile the partition's monitor thread reads the channel,
        and a stop signal is passed to the partition."""
        from drumline.runner.sweep.partition_monitor import KeeperPipe
        from drumline.runner.sweep.partition_run import PartitionRun  # not every runner runs sweeps

        self.interruptible = False
        self.channel.send(OpenPartition(task.id))
        partition = self._wait_for_partition(task.id)
        pipe = KeeperPipe(self.channel.end.fileno(), self.channel.send, self._read_replies)
        self.partition_run = PartitionRun(task, registered, partition, pipe)
        try:
            if self.stop_requested:
                raise Stopped
            return self.partition_run.run()
        finally:
            self.partition_run = None

    def _wait_for_partition(self, task_id: int) -> PartitionInfo:
        while True:
            while self.replies:
                frame = self.replies.popleft()
                if isinstance(frame, PartitionOpened) and frame.task_id == task_id:
                    if frame.partition is None:
                        raise RunLost
                    return frame.partition
            if not self._read():
                raise RunLost

    def _read_replies(self) -> list[Frame] | None:
        if not self._read():
            return None
        frames = list(self.replies)
        self.replies.clear()
        return frames

    def _store_capture(self, task_id: int, before: str, after: str) -> bool:
        # Not interruptible while a frame is written: the rest of a frame cut in the middle would
        # be read as part of the next one.
        self.interruptible = False
        self.channel.send(StoreCapture(task_id, before, after))
        while (held := self._capture_reply(task_id)) is None:
            self._wait_for_reply()
            if not self._read():
                raise RunLost
        self._allow_interrupt()
        return held

    def _capture_reply(self, task_id: int) -> bool | None:
        while self.replies:
            frame = self.replies.popleft()
            if isinstance(frame, CaptureStored) and frame.task_id == task_id:
                return frame.held
        return None

    def _wait_for_reply(self) -> None:
        self._allow_interrupt()
        select.select([self.channel.end], [], [])
        self.interruptible = False

    def _allow_interrupt(self) -> None:
        """Let the stop signal interrupt again; act on one that came in between."""
        self.interruptible = True
        if self.stop_requested:
            raise Stopped

    def _on_stop_signal(self, _: int, frame: FrameType | None) -> None:
        self.stop_requested = True
        if self.interruptible:
            self.interruptible = False
            self.channel.send(StackReport(self.task_id, stacks.frame_stack(frame)))
            raise Stopped
        if self.partition_run is not None:
            self.partition_run.stop()
