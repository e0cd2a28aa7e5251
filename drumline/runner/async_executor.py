"""Runs async tasks, many at a time, in an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback

from drumline.domain.task import DueTask
from drumline.handlers.registry import Registry
from drumline.runner import stacks
from drumline.runner.assigned_tasks import AssignedTasks
from drumline.runner.blackbox import SLOTS, BlackBox
from drumline.runner.execute import (
    RUN_LOST,
    RunLost,
    encode_result,
    failure_details,
    format_error,
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
    RunEnded,
    RunTasks,
    StackReport,
    StoreCapture,
    encode_frame,
    read_ticket,
)
from drumline.task import Task


class AsyncExecutor:
    """Runs in its own thread, so that a sync task does not block the event loop."""

    def __init__(self, registry: Registry, channel: Channel, tickets: int, box: BlackBox) -> None:
        self.registry = registry
        self.channel = channel
        self.tickets = tickets
        self.box = box
        self.assigned = AssignedTasks()
        self.running: dict[int, asyncio.Task[None]] = {}
        self.stop_requested: set[int] = set()
        self.captures: dict[int, asyncio.Future[bool]] = {}
        self.free_slots = list(range(SLOTS - 1, 0, -1))
        self.outgoing = bytearray()
        self.ended_slots: list[int] = []
        """The slots of tasks whose RunEnded frame has not been written yet."""
        self.closed = asyncio.Event()

    def start(self) -> int:
        """Start the thread and return its kernel id."""
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        return thread.native_id or 0

    def _serve(self) -> None:
        try:
            asyncio.new_event_loop().run_until_complete(self._main())
        except BaseException:
            # A task that calls exit() ends the loop, so the other tasks cannot go on: the runner
            # exits. They are not cancelled, which would look like a failure of theirs. The tasks
            # that ended in this turn of the loop are reported, or they would run again.
            traceback.print_exc()
            self._flush()
            os._exit(1)

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self.channel.end, self._read)
        loop.add_reader(self.tickets, self._start_tasks)
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
                    self.assigned.add(frame)
                case ForgetTasks():
                    self.assigned.forget(frame)
                case CancelTask() if frame.task_id in self.running:
                    self._cancel(frame.task_id)
                case CaptureStored() if frame.task_id in self.captures:
                    reply = self.captures.pop(frame.task_id)
                    if not reply.done():  # done if the task was cancelled while it waited
                        reply.set_result(frame.held)

    def _cancel(self, task_id: int) -> None:
        self.stop_requested.add(task_id)
        task = self.running[task_id]
        self._send(StackReport(task_id, stacks.coroutine_stack(task.get_coro())))
        task.cancel()

    def _start_tasks(self) -> None:
        """Start the tasks whose tickets have come."""
        while (ticket := read_ticket(self.tickets)) is not None:
            # The keeper writes the frame that describes a task before its ticket: wait for it.
            while not self.assigned.has(ticket):
                self._read()
                if self.closed.is_set():
                    return
            due_task = self.assigned.take(ticket)
            run = asyncio.get_running_loop().create_task(self._run(due_task))
            self.running[due_task.id] = run

    async def _run(self, due_task: DueTask) -> None:
        slot = self.free_slots.pop()
        callback = self.assigned.take_callback(due_task.id)
        started = time.monotonic_ns()
        self.box.record(slot, due_task.id, started)
        ok, text, wait, failure = False, None, None, None
        try:
            task, registered = Task(due_task, callback), self.registry[due_task.key]
            steps = task_steps(
                task, registered, lambda b, a: self._store_capture(due_task.id, b, a)
            )
            result, wait = unpack_result(await run_steps_async(steps), task, registered)
            text = encode_result(result)
            ok = True
        except RunLost:
            text = RUN_LOST
        except BaseException as error:
            # A CancelledError that the handler raised itself is a failure like another: only a
            # task that the keeper asked to stop was stopped.
            text, failure = format_error(error), failure_details(error)
        stopped = not ok and due_task.id in self.stop_requested
        seconds = (time.monotonic_ns() - started) / 1e9
        text = None if stopped else text
        self._send(RunEnded(due_task.id, seconds, ok, text, stopped, wait, failure))
        self.ended_slots.append(slot)
        self.stop_requested.discard(due_task.id)
        del self.running[due_task.id]

    async def _store_capture(self, task_id: int, before: str, after: str) -> bool:
        reply: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.captures[task_id] = reply
        self._send(StoreCapture(task_id, before, after))
        return await reply

    def _send(self, frame: Frame) -> None:
        """Send a frame, in one write with the other frames of this turn of the loop."""
        if not self.outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self.outgoing += encode_frame(frame)

    def _flush(self) -> None:
        self.channel.end.sendall(self.outgoing)
        self.outgoing.clear()
        # After the write: if the runner dies before it, the task must look as if it was running,
        # not as if it had never started.
        for slot in self.ended_slots:
            self.box.erase(slot)
        self.free_slots += self.ended_slots
        self.ended_slots.clear()
