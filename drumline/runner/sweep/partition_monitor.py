"""The thread beside a partition's items: sends checkpoints, receives directives, enforces timeouts.

Items never wait for this thread and it never waits for items: a sweep whose items take minutes
still stores a checkpoint and receives its directives every second.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

from drumline.runner.frames import CheckpointStored, Frame, StoreCheckpoint
from drumline.runner.sweep.item_executor import ItemExecutor, Slot
from drumline.runner.sweep.item_window import ItemWindow

CHECK_SECONDS = 0.05
MAX_BLOCK_SECONDS = 0.5
"""A block that runs longer ends after its present item."""
GRACE = 2.0
"""Seconds in which an interrupted item must end. If it does not, its runner is killed."""


class KeeperPipe:
    """The connection to the keeper while a partition runs."""

    def __init__(
        self, fd: int, send: Callable[[Frame], None], receive: Callable[[], list[Frame] | None]
    ) -> None:
        self.fd = fd
        self.send = send
        self.receive = receive
        """Read frames; None if the keeper has closed its end."""


class PartitionMonitor:
    """Runs from before the first item until the last checkpoint is stored."""

    def __init__(self, window: ItemWindow, pipe: KeeperPipe, timeout: float) -> None:
        self.window = window
        self.pipe = pipe
        self.timeout = timeout
        self.executor: ItemExecutor | None = None
        self.lost = False
        """Another worker has acquired the partition."""
        self.error: BaseException | None = None
        self._finishing = False
        self._seen: dict[Slot, tuple[tuple[int, int] | None, float]] = {}
        self._reported_stuck: set[int] = set()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        os.set_blocking(self._wake_in, False)
        window.on_checkpoint_due = self._wake
        self._thread = threading.Thread(target=self._run, name="partition-monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Store what is done, and end. Call it when no item runs any more."""
        self._finishing = True
        self._wake()
        while self._thread.is_alive():
            self._thread.join(0.5)  # with a timeout, so that the main thread handles signals
        os.close(self._wake_out)
        os.close(self._wake_in)

    def abandon(self) -> None:
        """End without another checkpoint."""
        self.lost = True
        self.finish()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # a full pipe wakes the thread as well
            os.write(self._wake_in, b"\0")

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._step()
        except BaseException as error:
            self.error = error
            self.window.close("its runner failed")

    def _is_over(self) -> bool:
        return self.lost or (self._finishing and self.window.is_stored())

    def _step(self) -> None:
        readable, _, _ = select.select([self.pipe.fd, self._wake_out], [], [], CHECK_SECONDS)
        if self._wake_out in readable:
            os.read(self._wake_out, 4096)
        if self.pipe.fd in readable:
            self._read_frames()
        if self._is_over():
            return
        now = self.window.clock()
        stuck = tuple(sorted(self._interrupt_late_items(now) - self._reported_stuck))
        checkpoint = self.window.next_checkpoint(now, final=self._finishing, stuck=stuck)
        if checkpoint is not None:
            self._reported_stuck.update(stuck)
            self.pipe.send(StoreCheckpoint(self.window.task_id, checkpoint))

    def _read_frames(self) -> None:
        frames = self.pipe.receive()
        if frames is None:
            os._exit(1)  # the keeper has ended, so its runner ends
        for frame in frames:
            if isinstance(frame, CheckpointStored):
                self.window.checkpoint_stored(frame.start, frame.directives)
                if not frame.held:
                    self.lost = True
                    self.window.close("another worker has acquired it")

    def _interrupt_late_items(self, now: float) -> set[int]:
        """Interrupt the items that are past their timeout; return those that did not end."""
        executor = self.executor
        if executor is None:
            return set()
        stuck: set[int] = set()
        for slot in executor.slots:
            current = slot.current
            seen, since = self._seen.get(slot, (None, now))
            if current is None or current != seen:
                self._seen[slot] = (current, now)
                continue
            if now - slot.block_started > min(MAX_BLOCK_SECONDS, self.timeout):
                slot.end_block = True
                self.window.mark_done(slot.done_items())
            if now - since > self.timeout + GRACE:
                stuck.add(current[0])
            elif now - since > self.timeout and slot.timed_out != current:
                slot.timed_out = current
                executor.interrupt(slot)
        blocking = executor.blocking_item()
        return stuck if blocking is None else stuck | {blocking}
