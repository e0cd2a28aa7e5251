"""Where the items of a partition are taken from and reported to, by however many at a time.

It owns the window, the rate, the error budget and what the items have to say; one lock guards
all of it. Items are taken and reported in blocks, so that a no-op costs no lock and no clock.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from drumline.domain.sweeps import sweep as rules
from drumline.domain.sweeps.partition import (
    MAX_LOG_LINES,
    MAX_MESSAGE_LENGTH,
    Checkpoint,
    LogLine,
    PartitionDirectives,
    PartitionInfo,
    PartitionResult,
)
from drumline.domain.sweeps.rate import Speed, TokenBucket, window_size
from drumline.domain.sweeps.sweep import SweepState
from drumline.domain.sweeps.window import CHECKPOINT_SECONDS, Window
from drumline.handlers.sweep import RunningSweep, encode_extra

LOOPS_PARALLEL = 100
"""Async items at a time if nobody says how many; sync ones run one at a time."""
SETTLE_SECONDS = 1.0
"""For so long after an operator's stop, what was taken and given back is still run: items behind
it are done, and would run again after the next start."""


class ItemWindow(RunningSweep):
    """One run of one partition."""

    def __init__(
        self,
        task_id: int,
        fence: int,
        part: PartitionInfo,
        *,
        is_async: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sweep_id, self.name, self.fence = part.sweep_id, part.name, fence
        self.extra: Any = None if part.extra is None else msgspec.json.decode(part.extra)
        self.clock = clock
        self.changed = threading.Condition()
        self.wake: Callable[[], None] = lambda: None
        """Called, under the lock, when there is something to flush."""
        self.listener: Callable[[], None] = lambda: None
        """Called, under the lock, when items may start again."""
        self.here = threading.local()
        """Each thread's own `leave_block`: its item was the last that it is to run."""
        self.task_id = task_id
        self._live = part.directives
        self._default = LOOPS_PARALLEL if is_async else 1
        self._end = part.end
        now = clock()
        size = window_size(part.directives.rate, 0.0, self.parallel)
        self._window = Window(part.start, part.end, size, now=now, errors=part.errors)
        self._bucket = TokenBucket(part.directives.rate, now)
        self._speed = Speed(now, part.start)
        self._stuck = sorted(item for item in part.stuck if item >= part.start)
        self._left: deque[range] = deque()  # taken and given back: to be taken again first
        self._lines: list[LogLine] = []
        self._dropped = 0
        self._extra_said: str | None = None  # by the items that run
        self._extra_done: str | None = None  # by items that are done
        self._asked_at = now
        self._sent: Checkpoint | None = None  # the checkpoint that is not answered yet
        self._reason: str | None = None
        self._by_handler = False
        self.closed = part.directives.stop
        """No item is taken any more that was not taken before."""
        self._settled_at = now
        self.aborted = False
        """And those that run are to end at once."""

    @property
    def parallel(self) -> int:
        return self._live.parallel or self._default

    @property
    def serial(self) -> bool:
        """One item of the whole sweep at a time."""
        return self._live.serial and self.parallel == 1

    # --- items -----------------------------------------------------------------------------------

    def take(self, wanted: int, parallel: int) -> range:
        """The next items, as soon as there are some; none at all if no more are to start, or not
        by so many at a time."""
        with self.changed:
            while True:
                if self.is_over() or self.parallel != parallel:
                    return range(0)
                block = self._take(wanted)
                if block:
                    return block
                self.changed.wait(self._patience())

    def take_now(self, wanted: int) -> range:
        """The items that may start now."""
        with self.changed:
            return range(0) if self.is_over() else self._take(wanted)

    def patience(self) -> float:
        """After how many seconds there may be more, if nothing else happens."""
        with self.changed:
            return self._patience()

    def is_over(self) -> bool:
        """No item is left to be started, or none may be."""
        if not self._left:
            return self.closed or self._window.next >= self._end
        return self.aborted or (self.closed and self.clock() >= self._settled_at)

    def _take(self, wanted: int) -> range:
        if not self.closed:
            self._pass_stuck()
        room = len(self._left[0]) if self._left else self._window.room
        granted = self._bucket.take(self.clock(), min(wanted, room))
        if granted and self._left:
            block = self._left.popleft()
            if granted < len(block):
                self._left.appendleft(block[granted:])
            return block[:granted]
        if self._stuck:
            granted = min(granted, self._stuck[0] - self._window.next)
        return self._window.take(granted)

    def _pass_stuck(self) -> None:
        """What could not be stopped the last time is not begun again: it has failed."""
        while self._stuck and self._stuck[0] == self._window.next and self._window.room:
            item = self._stuck.pop(0)
            self._window.take(1)
            self._failed(item, "it could not be stopped at its timeout")

    def _patience(self) -> float:
        if not self._left and not self._window.room:
            return CHECKPOINT_SECONDS  # a checkpoint makes room, and wakes us
        return min(CHECKPOINT_SECONDS, max(0.0005, self._bucket.seconds_until(self.clock())))

    def report(self, block: range, done: int) -> None:
        """The items of this block before index `done` are over; the rest was not begun."""
        with self.changed:
            self._window.mark_range_done(block.start, done)
            if done < block.stop:
                self._left.append(range(done, block.stop))
            if self._extra_said is not None:
                self._extra_done, self._extra_said = self._extra_said, None
            self._moved()

    def passed(self, items: range) -> None:
        """These are over while their block still runs. What they made of the extra data is stored
        with the block, so then they are, too."""
        with self.changed:
            if items and self._extra_said is None:
                self._window.mark_range_done(items.start, items.stop)

    def failed(self, item: int, error: str) -> None:
        """An item has failed for good."""
        with self.changed:
            self._failed(item, error)
            self._moved()

    def _failed(self, item: int, error: str) -> None:
        if not self._window.mark_failed(item):
            return
        self._note(item, f"failed: {error}")
        live = self._live
        spent = rules.spent_budget_reason(
            self._window.errors + live.other_errors, live.errors_at_start, live.budget
        )
        if spent is not None:
            self._close(spent)

    def _moved(self) -> None:
        if self._sent is None and self._window.checkpoint_due(self.clock()):
            self.wake()

    # --- what items say --------------------------------------------------------------------------

    def log(self, item: int, message: str) -> None:
        with self.changed:
            self._note(item, str(message))

    def _note(self, item: int, message: str) -> None:
        if len(self._lines) >= MAX_LOG_LINES:
            self._dropped += 1
        else:
            clean = message.encode(errors="backslashreplace").decode()
            self._lines.append(LogLine(item, clean[:MAX_MESSAGE_LENGTH]))

    def stop(self, reason: str) -> None:
        self.leave_block()
        with self.changed:
            self._close(str(reason) or "its handler stopped it", by_handler=True)

    def leave_block(self) -> None:
        leave: Callable[[], None] | None = getattr(self.here, "leave_block", None)
        if leave is not None:
            leave()

    def change_extra(self, value: Any) -> None:
        parallel = 1 if self.serial else max(2, self.parallel)
        rules.check_extra_change(SweepState.RUNNING, parallel)
        self._extra_said = encode_extra(value)
        self.extra = value

    # --- the end ---------------------------------------------------------------------------------

    def close(self, reason: str | None = None) -> None:
        """No further item starts."""
        with self.changed:
            self._close(reason)

    def _close(self, reason: str | None, by_handler: bool = False, settle: float = 0.0) -> None:
        if not self.closed:
            self._reason, self._by_handler = reason, by_handler
            self._settled_at = math.inf
        self._settled_at = min(self._settled_at, self.clock() + settle)
        self.closed = True
        self.changed.notify_all()
        self.listener()
        self.wake()

    def abort(self) -> None:
        """From a signal handler, so without the lock: who waits looks again within a second."""
        self.aborted = self.closed = True

    def is_stored(self) -> bool:
        """All that is done is stored, and nothing is left to be said."""
        with self.changed:
            said = self._lines or self._dropped or self._extra_done is not None
            return self._window.stored == self._window.start and not said and self._sent is None

    def end(self) -> PartitionResult:
        window = self._window
        done = window.finished
        reason = None if done else self._reason
        return PartitionResult(window.start, window.errors, done, reason, self._by_handler)

    # --- checkpoints -----------------------------------------------------------------------------

    def flush(
        self, now: float, final: bool = False, stuck: tuple[int, ...] = ()
    ) -> Checkpoint | None:
        """A checkpoint, if one is due: on a timer, at half a window, and at the end."""
        with self.changed:
            timed = now - self._asked_at >= CHECKPOINT_SECONDS
            due = final or stuck or timed or self._window.checkpoint_due(now)
            if self._sent is not None or not due:
                return None
            point = self._window.checkpoint(now)
            speed = self._speed.measure(now, point.start)
            if self._dropped:
                self._lines.append(LogLine(point.start, f"{self._dropped:,} lines were left out"))
            lines, self._lines, self._dropped = tuple(self._lines), [], 0
            extra, self._extra_done = self._extra_done, None
            self._asked_at = now
            self._sent = Checkpoint(
                point.start, point.errors, point.failed, lines, extra, speed, stuck
            )
            return self._sent

    def flushed(self, start: int, live: PartitionDirectives | None) -> None:
        """The checkpoint with this start is stored, and this is what goes from now on. Without
        that it could not be stored: the next one says it again."""
        with self.changed:
            sent = self._sent
            if sent is None or sent.start != start:
                return  # an answer to an earlier run of this partition
            self._sent = None
            if live is None:
                self._lines[:0] = sent.log
                self._extra_done = self._extra_done or sent.extra
                return
            now = self.clock()
            self._window.confirm_stored(start)
            self._live = live
            if live.rate != self._bucket.rate:
                self._bucket.set_rate(live.rate, now)
            self._window.resize(window_size(live.rate, self._speed.per_second, self.parallel))
            if live.stop:
                self._close(None, settle=SETTLE_SECONDS)
            self._moved()
            self.changed.notify_all()
            self.listener()
