"""Hands out the items of a partition to the threads or coroutines that run them.

It holds the window, the rate, the error budget and the lines for the data log; one lock guards all
of it. Items are taken and reported in blocks, so that the lock and the clock cost a no-op item
nothing.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from drumline.domain.sweeps.partition import (
    Checkpoint,
    PartitionDirectives,
    PartitionInfo,
    PartitionResult,
)
from drumline.domain.sweeps.progress import spent_budget_reason
from drumline.domain.sweeps.rate import Speed, TokenBucket, window_size
from drumline.domain.sweeps.states import SweepState, check_extra_change
from drumline.domain.sweeps.window import CHECKPOINT_SECONDS, Window
from drumline.handlers.sweep import RunningSweep, encode_extra
from drumline.runner.sweep.data_log import DataLogBuffer

DEFAULT_ASYNC_PARALLEL = 100
"""Async items at a time unless the sweep sets a number; sync items run one at a time."""
SETTLE_SECONDS = 1.0
"""After an operator's stop, items that were taken and given back still run for this long: later
items are done, and would run again after the next start."""


class ItemWindow(RunningSweep):
    """The items of one run of one partition."""

    def __init__(
        self,
        task_id: int,
        fence: int,
        partition: PartitionInfo,
        *,
        is_async: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sweep_id, self.name, self.fence = partition.sweep_id, partition.name, fence
        self.extra: Any = None if partition.extra is None else msgspec.json.decode(partition.extra)
        self.clock = clock
        self.changed = threading.Condition()
        self.on_checkpoint_due: Callable[[], None] = lambda: None
        """Called with the lock held."""
        self.on_items_available: Callable[[], None] = lambda: None
        """Called with the lock held, when items may start again."""
        self.thread_state = threading.local()
        """`leave_block` of each thread: its item is the last that it runs."""
        self.task_id = task_id
        self._directives = partition.directives
        self._default_parallel = DEFAULT_ASYNC_PARALLEL if is_async else 1
        self._end = partition.end
        now = clock()
        size = window_size(partition.directives.rate, 0.0, self.parallel)
        self._window = Window(
            partition.start, partition.end, size, now=now, errors=partition.errors
        )
        self._bucket = TokenBucket(partition.directives.rate, now)
        self._speed = Speed(now, partition.start)
        self._stuck = sorted(item for item in partition.stuck if item >= partition.start)
        self._returned: deque[range] = deque()  # taken and given back; taken again first
        self._log = DataLogBuffer()
        self._extra_of_running: str | None = None  # set by items that are still running
        self._extra_of_done: str | None = None  # set by items that are done, and not stored yet
        self._checkpoint_at = now
        self._pending: Checkpoint | None = None  # sent to the keeper and not answered yet
        self._reason: str | None = None
        self._by_handler = False
        self.closed = partition.directives.stop
        """No new item starts; only those given back may still run."""
        self._settled_at = now
        self.aborted = False
        """Running items must end at once."""

    @property
    def parallel(self) -> int:
        return self._directives.parallel or self._default_parallel

    @property
    def serial(self) -> bool:
        """One item of the whole sweep at a time."""
        return self._directives.serial and self.parallel == 1

    # --- items -----------------------------------------------------------------------------------

    def wait_for_items(self, wanted: int, parallel: int) -> range:
        """Take the next items, waiting until there are some. Empty if no more items are to start,
        or if the number of items that run at a time is not `parallel` any more."""
        with self.changed:
            while True:
                if self.is_exhausted() or self.parallel != parallel:
                    return range(0)
                block = self._take(wanted)
                if block:
                    return block
                self.changed.wait(self._wait_seconds())

    def take_items(self, wanted: int) -> range:
        """Take the items that may start now."""
        with self.changed:
            return range(0) if self.is_exhausted() else self._take(wanted)

    def wait_seconds(self) -> float:
        """The longest time to wait before asking for items again."""
        with self.changed:
            return self._wait_seconds()

    def is_exhausted(self) -> bool:
        """Whether no item is left to start, or none may start."""
        if not self._returned:
            return self.closed or self._window.next >= self._end
        return self.aborted or (self.closed and self.clock() >= self._settled_at)

    def _take(self, wanted: int) -> range:
        if not self.closed:
            self._fail_stuck_items()
        room = len(self._returned[0]) if self._returned else self._window.room
        granted = self._bucket.take(self.clock(), min(wanted, room))
        if granted and self._returned:
            block = self._returned.popleft()
            if granted < len(block):
                self._returned.appendleft(block[granted:])
            return block[:granted]
        if self._stuck:
            granted = min(granted, self._stuck[0] - self._window.next)
        return self._window.take(granted)

    def _fail_stuck_items(self) -> None:
        """An item that could not be stopped in an earlier run does not run again."""
        while self._stuck and self._stuck[0] == self._window.next and self._window.room:
            item = self._stuck.pop(0)
            self._window.take(1)
            self._mark_failed(item, "it could not be stopped at its timeout")

    def _wait_seconds(self) -> float:
        if not self._returned and not self._window.room:
            return CHECKPOINT_SECONDS  # a stored checkpoint makes room and notifies
        return min(CHECKPOINT_SECONDS, max(0.0005, self._bucket.seconds_until(self.clock())))

    def finish_block(self, block: range, done: int) -> None:
        """The items of this block before index `done` are done; the others have not started."""
        with self.changed:
            self._window.mark_range_done(block.start, done)
            if done < block.stop:
                self._returned.append(range(done, block.stop))
            if self._extra_of_running is not None:
                self._extra_of_done, self._extra_of_running = self._extra_of_running, None
            self._notify_if_due()

    def mark_done(self, items: range) -> None:
        """These items are done while their block still runs. If they changed the extra data, they
        are left for the end of the block: both must be in the same checkpoint."""
        with self.changed:
            if items and self._extra_of_running is None:
                self._window.mark_range_done(items.start, items.stop)

    def mark_failed(self, item: int, error: str) -> None:
        """An item has failed, and is not retried."""
        with self.changed:
            self._mark_failed(item, error)
            self._notify_if_due()

    def _mark_failed(self, item: int, error: str) -> None:
        if not self._window.mark_failed(item):
            return
        self._log.add(item, f"failed: {error}")
        directives = self._directives
        errors = self._window.errors + directives.other_errors
        reason = spent_budget_reason(errors, directives.errors_at_start, directives.budget)
        if reason is not None:
            self._close(reason)

    def _notify_if_due(self) -> None:
        if self._pending is None and self._window.checkpoint_due(self.clock()):
            self.on_checkpoint_due()

    # --- called by items -------------------------------------------------------------------------

    def log(self, item: int, message: str) -> None:
        with self.changed:
            self._log.add(item, str(message))

    def stop(self, reason: str) -> None:
        self.leave_block()
        with self.changed:
            self._close(str(reason) or "its handler stopped it", by_handler=True)

    def leave_block(self) -> None:
        leave: Callable[[], None] | None = getattr(self.thread_state, "leave_block", None)
        if leave is not None:
            leave()

    def change_extra(self, value: Any) -> None:
        parallel = 1 if self.serial else max(2, self.parallel)
        check_extra_change(SweepState.RUNNING, parallel)
        self._extra_of_running = encode_extra(value)
        self.extra = value

    # --- the end ---------------------------------------------------------------------------------

    def close(self, reason: str | None = None) -> None:
        """Start no more items."""
        with self.changed:
            self._close(reason)

    def _close(self, reason: str | None, by_handler: bool = False, settle: float = 0.0) -> None:
        if not self.closed:
            self._reason, self._by_handler = reason, by_handler
            self._settled_at = math.inf
        self._settled_at = min(self._settled_at, self.clock() + settle)
        self.closed = True
        self.changed.notify_all()
        self.on_items_available()
        self.on_checkpoint_due()

    def abort(self) -> None:
        """Called from a signal handler, so it takes no lock; waiting threads see it within a
        second."""
        self.aborted = self.closed = True

    def is_stored(self) -> bool:
        """Whether the keeper has stored everything that items did and logged."""
        with self.changed:
            unsent = self._log or self._extra_of_done is not None
            stored = self._window.stored == self._window.start
            return stored and not unsent and self._pending is None

    def result(self) -> PartitionResult:
        window = self._window
        done = window.finished
        reason = None if done else self._reason
        return PartitionResult(window.start, window.errors, done, reason, self._by_handler)

    # --- checkpoints -----------------------------------------------------------------------------

    def next_checkpoint(
        self, now: float, final: bool = False, stuck: tuple[int, ...] = ()
    ) -> Checkpoint | None:
        """The checkpoint to store, if one is due: every second, at half a window, at the end."""
        with self.changed:
            timed = now - self._checkpoint_at >= CHECKPOINT_SECONDS
            due = final or stuck or timed or self._window.checkpoint_due(now)
            if self._pending is not None or not due:
                return None
            position = self._window.checkpoint(now)
            extra, self._extra_of_done = self._extra_of_done, None
            self._checkpoint_at = now
            self._pending = msgspec.structs.replace(
                position,
                log=self._log.drain(position.start),
                extra=extra,
                speed=self._speed.measure(now, position.start),
                stuck=stuck,
            )
            return self._pending

    def checkpoint_stored(self, start: int, directives: PartitionDirectives | None) -> None:
        """The checkpoint with this start is stored, and these directives apply from now on.
        Without directives it could not be stored: the next one repeats it."""
        with self.changed:
            sent = self._pending
            if sent is None or sent.start != start:
                return  # the answer to an earlier run of this partition
            self._pending = None
            if directives is None:
                self._log.restore(sent.log)
                self._extra_of_done = self._extra_of_done or sent.extra
                return
            now = self.clock()
            self._window.confirm_stored(start)
            self._directives = directives
            if directives.rate != self._bucket.rate:
                self._bucket.set_rate(directives.rate, now)
            size = window_size(directives.rate, self._speed.per_second, self.parallel)
            self._window.resize(size)
            if directives.stop:
                self._close(None, settle=SETTLE_SECONDS)
            self._notify_if_due()
            self.changed.notify_all()
            self.on_items_available()
