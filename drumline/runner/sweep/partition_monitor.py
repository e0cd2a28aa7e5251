"""The thread beside a partition's items: checkpoints, news from the keeper, and timeouts.

Items never wait for it and it never waits for items: a sweep whose items take minutes still says
every second how far it is, and hears that it is to stop.
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

LOOK_SECONDS = 0.05
LONGEST_BLOCK = 0.5
"""Seconds after which a block that turned out slow is cut short."""
GRACE = 2.0
"""Seconds in which an item must end once it was struck; past them its runner is killed."""


class KeeperPipe:
    """The keeper's end, as a part needs it."""

    def __init__(
        self, fd: int, send: Callable[[Frame], None], receive: Callable[[], list[Frame] | None]
    ) -> None:
        self.fd = fd
        self.send = send
        self.receive = receive
        """What has come; None when the keeper is gone."""


class PartitionMonitor:
    """Beats from the first item to the last checkpoint."""

    def __init__(self, feeder: ItemWindow, pipe: KeeperPipe, timeout: float) -> None:
        self.feeder = feeder
        self.pipe = pipe
        self.timeout = timeout
        self.crew: ItemExecutor | None = None
        self.lost = False
        """The partition is not ours any more."""
        self.error: BaseException | None = None
        self._finishing = False
        self._seen: dict[Slot, tuple[tuple[int, int] | None, float]] = {}
        self._told_stuck: set[int] = set()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        os.set_blocking(self._wake_in, False)
        feeder.wake = self._wake
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Store what is done, and end. Called when no item runs any more."""
        self._finishing = True
        self._wake()
        while self._thread.is_alive():
            self._thread.join(0.5)  # so that a signal finds the main thread awake
        os.close(self._wake_out)
        os.close(self._wake_in)

    def abandon(self) -> None:
        """End without another checkpoint."""
        self.lost = True
        self.finish()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # it is full of wake-ups already
            os.write(self._wake_in, b"\0")

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._beat()
        except BaseException as error:
            self.error = error
            self.feeder.close("its runner broke")

    def _is_over(self) -> bool:
        return self.lost or (self._finishing and self.feeder.is_stored())

    def _beat(self) -> None:
        readable, _, _ = select.select([self.pipe.fd, self._wake_out], [], [], LOOK_SECONDS)
        if self._wake_out in readable:
            os.read(self._wake_out, 4096)
        if self.pipe.fd in readable:
            self._hear()
        if self._is_over():
            return
        now = self.feeder.clock()
        stuck = tuple(sorted(self._look(now) - self._told_stuck))
        flush = self.feeder.flush(now, final=self._finishing, stuck=stuck)
        if flush is not None:
            self._told_stuck.update(stuck)
            self.pipe.send(StoreCheckpoint(self.feeder.task_id, flush))

    def _hear(self) -> None:
        frames = self.pipe.receive()
        if frames is None:
            os._exit(1)  # the keeper is gone, and we with it
        for frame in frames:
            if isinstance(frame, CheckpointStored):
                self.feeder.flushed(frame.start, frame.directives)
                if not frame.ours:
                    self.lost = True
                    self.feeder.close("it belongs to another worker now")

    def _look(self, now: float) -> set[int]:
        """Strike those that are late; the items that could not be stopped."""
        crew = self.crew
        if crew is None:
            return set()
        stuck: set[int] = set()
        for slot in crew.slots:
            doing = slot.doing
            seen, since = self._seen.get(slot, (None, now))
            if doing is None or doing != seen:
                self._seen[slot] = (doing, now)
                continue
            if now - slot.begun > min(LONGEST_BLOCK, self.timeout):
                slot.halt = True
                self.feeder.passed(slot.passed())
            if now - since > self.timeout + GRACE:
                stuck.add(doing[0])
            elif now - since > self.timeout and slot.late != doing:
                slot.late = doing
                crew.interrupt(slot)
        blocked = crew.blocked()
        return stuck if blocked is None else stuck | {blocked}
