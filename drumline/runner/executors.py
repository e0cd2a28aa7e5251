"""The runner's two lanes: sync tasks one at a time, async tasks many at a time in a loop."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
import time
import traceback
from collections import deque
from types import FrameType
from typing import TYPE_CHECKING

from drumline.domain.sweeps.partition import PartitionInfo, PartitionResult
from drumline.domain.task import DueTask
from drumline.handlers.base import STOP_SIGNAL, RegisteredHandler
from drumline.handlers.registry import Registry
from drumline.runner import stacks
from drumline.runner.blackbox import SLOTS, BlackBox
from drumline.runner.execute import (
    RunLost,
    Stopped,
    encode_result,
    failure_details,
    format_error,
    run_steps,
    run_steps_async,
    task_steps,
    unpack_result,
)
from drumline.runner.frames import (
    CancelTask,
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
    encode_frame,
    read_ticket,
)
from drumline.task import Task

if TYPE_CHECKING:
    from drumline.runner.sweep.partition_run import PartitionRun

NOT_OURS = "the task was given to another worker"


class SyncExecutor:
    """Runs in the main thread, so that a signal can reach into the running handler."""

    def __init__(self, registry: Registry, channel: Channel, tickets: int, box: BlackBox) -> None:
        self.registry = registry
        self.channel = channel
        self.tickets = tickets
        self.box = box
        self.known: dict[int, DueTask] = {}
        self.callbacks: dict[int, tuple[str, str]] = {}
        self.inbox: deque[Frame] = deque()
        self.task_id = 0
        self.running = False
        """An ask may strike: the handler's code is running, not ours."""
        self.asked = False
        """The present task was asked to stop."""
        self.part: PartitionRun | None = None
        """The partition of a sweep that runs."""
        signal.signal(STOP_SIGNAL, self._ask)

    def run(self) -> None:
        """Until the keeper closes its end."""
        # Only the ticket says whether a task may start; the frame that describes it always comes
        # first, so it is waited for when a ticket is ahead of it.
        while self._wait():
            while (ticket := read_ticket(self.tickets)) is not None:
                while not ticket.admits(self.known.get(ticket.task_id)):
                    if not self._read():
                        return
                self._run(self.known.pop(ticket.task_id))

    def _wait(self) -> bool:
        end = self.channel.end.fileno()
        readable, _, _ = select.select([end, self.tickets], [], [])
        return self._read() if end in readable else True

    def _read(self) -> bool:
        frames = self.channel.receive()
        if frames is None:
            return False
        for frame in frames:
            if isinstance(frame, RunTasks):
                self.known.update((due.id, due) for due in frame.tasks)
                self.callbacks.update(frame.callbacks)
            elif isinstance(frame, ForgetTasks):
                for task_id in frame.task_ids:
                    self.known.pop(task_id, None)
                    self.callbacks.pop(task_id, None)
            else:
                self.inbox.append(frame)
        return True

    def _run(self, due: DueTask) -> None:
        callback = self.callbacks.pop(due.id, None)
        started = time.monotonic_ns()
        self.asked = False
        self.task_id = due.id
        self.inbox.clear()  # answers to a task that did not wait for them
        self.box.note(0, due.id, started)
        ok, text, wait, failure = False, None, None, None
        try:
            try:
                self.running = True
                task, registered = Task(due, callback), self.registry[due.key]
                if registered.spec.sweep is not None:
                    result: object = self._sweep(task, registered)
                else:
                    steps = task_steps(task, registered, lambda b, a: self._capture(due.id, b, a))
                    result, wait = unpack_result(run_steps(steps), task, registered)
                text = encode_result(result)
                ok = True
            finally:
                # An ask strikes in here at the latest; what comes below is left in peace.
                self.running = False
        except Stopped:
            pass  # if it strikes after the last line of the handler, the result counts
        except RunLost:
            text = NOT_OURS
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: a handler's exit() is that task's failure.
            text, failure = format_error(error), failure_details(error)
        seconds = (time.monotonic_ns() - started) / 1e9
        stopped = self.asked and not ok
        self.channel.send(RunEnded(due.id, seconds, ok, text, stopped, wait, failure))
        self.box.wipe(0)

    def _sweep(self, task: Task, registered: RegisteredHandler) -> PartitionResult:
        """Run a partition of a sweep. Meanwhile its own thread reads our channel, and an ask is
        for the partition to act upon."""
        from drumline.runner.sweep.partition_monitor import KeeperPipe
        from drumline.runner.sweep.partition_run import PartitionRun  # not every runner runs sweeps

        self.running = False
        self.channel.send(OpenPartition(task.id))
        part = self._opened(task.id)
        pipe = KeeperPipe(self.channel.end.fileno(), self.channel.send, self._receive)
        self.part = PartitionRun(task, registered, part, pipe)
        try:
            if self.asked:
                raise Stopped
            return self.part.run()
        finally:
            self.part = None

    def _opened(self, task_id: int) -> PartitionInfo:
        while True:
            while self.inbox:
                frame = self.inbox.popleft()
                if isinstance(frame, PartitionOpened) and frame.task_id == task_id:
                    if frame.part is None:
                        raise RunLost
                    return frame.part
            if not self._read():
                raise RunLost

    def _receive(self) -> list[Frame] | None:
        if not self._read():
            return None
        frames = list(self.inbox)
        self.inbox.clear()
        return frames

    def _capture(self, task_id: int, before: str, after: str) -> bool:
        # No ask may strike in the middle of a frame: the rest of it would be taken for the next.
        self.running = False
        self.channel.send(StoreCapture(task_id, before, after))
        while (ours := self._answer(task_id)) is None:
            self._wait_for_answer()
            if not self._read():
                raise RunLost
        self._go_on()
        return ours

    def _answer(self, task_id: int) -> bool | None:
        while self.inbox:
            frame = self.inbox.popleft()
            if isinstance(frame, CaptureStored) and frame.task_id == task_id:
                return frame.ours
        return None

    def _wait_for_answer(self) -> None:
        self._go_on()
        select.select([self.channel.end], [], [])
        self.running = False

    def _go_on(self) -> None:
        """Let asks strike again, also the one that came meanwhile."""
        self.running = True
        if self.asked:
            raise Stopped

    def _ask(self, _: int, frame: FrameType | None) -> None:
        self.asked = True
        if self.running:
            self.running = False
            self.channel.send(StackReport(self.task_id, stacks.frame_stack(frame)))
            raise Stopped
        if self.part is not None:
            self.part.ask()


class AsyncExecutor:
    """Runs in a thread of its own, so that a sync task does not hold up the loop's tasks."""

    def __init__(self, registry: Registry, channel: Channel, tickets: int, box: BlackBox) -> None:
        self.registry = registry
        self.channel = channel
        self.tickets = tickets
        self.box = box
        self.known: dict[int, DueTask] = {}
        self.callbacks: dict[int, tuple[str, str]] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.asked: set[int] = set()
        self.captures: dict[int, asyncio.Future[bool]] = {}
        self.slots = list(range(SLOTS - 1, 0, -1))
        self.outgoing = bytearray()
        self.ended: list[int] = []
        """The slots of tasks whose end is not yet sent."""
        self.closed = asyncio.Event()

    def start(self) -> int:
        """The kernel's number of the lane's thread."""
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        return thread.native_id or 0

    def _serve(self) -> None:
        try:
            asyncio.new_event_loop().run_until_complete(self._main())
        except BaseException:
            # An exit() in a task's own sub-task ends the loop. Nobody would run the others any
            # more: the runner dies, and they are not cancelled first as if they had failed. What
            # has ended in this turn says so, or it would be run again.
            traceback.print_exc()
            self._flush()
            os._exit(1)

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self.channel.end, self._read)
        loop.add_reader(self.tickets, self._start_ticketed)
        await self.closed.wait()

    def _read(self) -> None:
        frames = self.channel.receive()
        if frames is None:
            self.closed.set()
            asyncio.get_running_loop().remove_reader(self.channel.end)
            return
        for frame in frames:
            match frame:
                case RunTasks():
                    self.known.update((due.id, due) for due in frame.tasks)
                    self.callbacks.update(frame.callbacks)
                case ForgetTasks():
                    for task_id in frame.task_ids:
                        self.known.pop(task_id, None)
                        self.callbacks.pop(task_id, None)
                case CancelTask() if frame.task_id in self.tasks:
                    self._cancel(frame.task_id)
                case CaptureStored() if frame.task_id in self.captures:
                    answer = self.captures.pop(frame.task_id)
                    if not answer.done():  # it is, if the task was cancelled as it waited
                        answer.set_result(frame.ours)

    def _cancel(self, task_id: int) -> None:
        self.asked.add(task_id)
        task = self.tasks[task_id]
        self._send(StackReport(task_id, stacks.coroutine_stack(task.get_coro())))
        task.cancel()

    def _start_ticketed(self) -> None:
        while (ticket := read_ticket(self.tickets)) is not None:
            # The frame that describes a task is written before its ticket; wait for it.
            while not ticket.admits(self.known.get(ticket.task_id)):
                self._read()
                if self.closed.is_set():
                    return
            due = self.known.pop(ticket.task_id)
            self.tasks[due.id] = asyncio.get_running_loop().create_task(self._run(due))

    async def _run(self, due: DueTask) -> None:
        slot = self.slots.pop()
        callback = self.callbacks.pop(due.id, None)
        started = time.monotonic_ns()
        self.box.note(slot, due.id, started)
        ok, text, wait, failure = False, None, None, None
        try:
            task, registered = Task(due, callback), self.registry[due.key]
            steps = task_steps(task, registered, lambda b, a: self._capture(due.id, b, a))
            result, wait = unpack_result(await run_steps_async(steps), task, registered)
            text = encode_result(result)
            ok = True
        except RunLost:
            text = NOT_OURS
        except BaseException as error:
            # A CancelledError of its own making too: only what we asked to stop was stopped.
            text, failure = format_error(error), failure_details(error)
        stopped = not ok and due.id in self.asked
        seconds = (time.monotonic_ns() - started) / 1e9
        text = None if stopped else text
        self._send(RunEnded(due.id, seconds, ok, text, stopped, wait, failure))
        self.ended.append(slot)
        self.asked.discard(due.id)
        del self.tasks[due.id]

    async def _capture(self, task_id: int, before: str, after: str) -> bool:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.captures[task_id] = answer
        self._send(StoreCapture(task_id, before, after))
        return await answer

    def _send(self, frame: Frame) -> None:
        """Send a frame, together with what others have to send in this turn of the loop."""
        if not self.outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self.outgoing += encode_frame(frame)

    def _flush(self) -> None:
        self.channel.end.sendall(self.outgoing)
        self.outgoing.clear()
        # Only now: an end that was never told must look like a death, not like no start at all.
        for slot in self.ended:
            self.box.wipe(slot)
        self.slots += self.ended
        self.ended.clear()
