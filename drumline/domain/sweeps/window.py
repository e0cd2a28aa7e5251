"""The sliding window of one partition of a sweep: what is started, what is done, how far it is.

All that is stored of a partition is a checkpoint: a start, before which every item is done, and
how many of those failed. Two rules make that enough:

- the start moves exactly when every item before it is done, so nothing is ever skipped;
- no item starts at or beyond the stored start + the window, so a crash repeats one window at most.

Items are taken and reported in ranges where the caller can: a no-op sweep then costs a few
nanoseconds an item (one byte each, set and searched in C), and a few hundred one by one.
"""

from __future__ import annotations

from bisect import bisect_left

from drumline.domain.sweeps.partition import Checkpoint

CHECKPOINT_SECONDS = 1.0  # seconds between checkpoints, unless half a window has moved before
MAX_FAILED_NAMED = 1_000  # failed indexes named by one checkpoint; more are only counted

RUNNING, DONE, FAILED = 0, 1, 2
_COMPACT = 4_096  # bytes of marks behind the start that are not worth freeing


class Window:
    """Items [start, end) of a partition that resumes at its stored start."""

    __slots__ = (
        "_ahead",
        "_asked",
        "_asked_at",
        "_base",
        "_behind",
        "_checkpoint_seconds",
        "_end",
        "_failed",
        "_limit",
        "_marks",
        "_max_failed_named",
        "_next",
        "_size",
        "_start",
        "_stored",
    )

    def __init__(
        self,
        start: int,
        end: int,
        size: int,
        *,
        now: float,
        errors: int = 0,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        max_failed_named: int = MAX_FAILED_NAMED,
    ) -> None:
        if not 0 <= start <= end:
            raise ValueError(f"a window needs 0 <= start <= end, not {start} and {end}")
        self._start = self._next = self._stored = self._asked = self._base = start
        self._end = end
        self._asked_at = now
        self._checkpoint_seconds = checkpoint_seconds
        self._marks = bytearray()  # of the items [_base, _next); those before _start mean nothing
        self._behind = errors  # failures before the start
        self._ahead = 0  # and beyond it
        self._failed: list[int] = []  # between the stored start and the start
        self._max_failed_named = max_failed_named
        self.resize(size)

    @property
    def start(self) -> int:
        """Every item before this one is done."""
        return self._start

    @property
    def stored(self) -> int:
        """The start as last flushed: where a crash would resume."""
        return self._stored

    @property
    def next(self) -> int:
        """The first item that has not been started."""
        return self._next

    @property
    def size(self) -> int:
        return self._size

    @property
    def room(self) -> int:
        """How many items may start now."""
        return max(0, self._limit - self._next)

    @property
    def errors(self) -> int:
        """All failures so far, in any order: what the error budget is compared with."""
        return self._behind + self._ahead

    @property
    def idle(self) -> bool:
        """Nothing that was started is still running."""
        return self._start == self._next

    @property
    def finished(self) -> bool:
        return self._start == self._end

    def take(self, wanted: int) -> range:
        """Start the next items: as many as wanted, or fewer, or none if the window is full."""
        first = self._next
        stop = first + wanted
        if stop > self._limit:
            stop = self._limit
        if stop <= first:
            return range(first, first)
        self._marks += bytes(stop - first)
        self._next = stop
        return range(first, stop)

    def give_back(self, start: int) -> None:
        """Items from this one on were taken and not begun; none of them may have ended."""
        if not self._start <= start <= self._next:
            raise ValueError(f"item {start} is not among those taken")
        at = start - self._base
        if self._marks.count(RUNNING, at) != self._next - start:
            raise ValueError(f"an item from {start} on has ended: it cannot be given back")
        del self._marks[at:]
        self._next = start

    def mark_done(self, index: int) -> bool:
        """This item has ended well. False: it had ended before (it timed out), nothing changes."""
        return self._end_one(index, DONE)

    def mark_failed(self, index: int) -> bool:
        """This item has failed for good: it counts as done, and as an error."""
        return self._end_one(index, FAILED)

    def _end_one(self, index: int, mark: int) -> bool:
        if index >= self._next:
            raise ValueError(f"item {index} was never started")
        at = index - self._base
        if index < self._start or self._marks[at]:
            return False
        self._marks[at] = mark
        if mark == FAILED:
            self._ahead += 1
        if index == self._start:
            self._advance()
        return True

    def mark_range_done(self, start: int, stop: int) -> int:
        """These items have ended well, except those that had ended before. Says how many did."""
        if stop > self._next:
            raise ValueError(f"item {stop - 1} was never started")
        if start < self._start:
            start = self._start
        wanted = stop - start
        if wanted <= 0:
            return 0
        low = start - self._base
        high = low + wanted
        running = self._marks.count(RUNNING, low, high)
        if running == wanted:
            self._marks[low:high] = b"\1" * wanted
        else:  # rare: a failure inside the range keeps its mark
            self._marks[low:high] = self._marks[low:high].replace(b"\0", b"\1")
        if start == self._start:
            self._advance()
        return running

    def _advance(self) -> None:
        """Move the start to the first item still running: each mark is passed over once."""
        marks = self._marks
        at = self._start - self._base
        stop = marks.find(RUNNING, at)
        if stop < 0:
            stop = len(marks)
        if self._ahead:
            self._pass_failures(at, stop)
        self._start = self._base + stop
        if stop > _COMPACT and 2 * stop >= len(marks):
            del marks[:stop]
            self._base += stop

    def _pass_failures(self, at: int, stop: int) -> None:
        passed = self._marks.count(FAILED, at, stop)
        self._ahead -= passed
        self._behind += passed
        for _ in range(min(passed, self._max_failed_named - len(self._failed))):
            at = self._marks.find(FAILED, at, stop) + 1
            self._failed.append(self._base + at - 1)

    def resize(self, size: int) -> None:
        """The rate has changed. Items started under a larger window may go on; no new one starts
        until the stored start has come near enough."""
        if size < 1:
            raise ValueError(f"a window holds at least one item, not {size}")
        self._size = size
        self._limit = min(self._end, self._stored + size)

    def checkpoint_due(self, now: float) -> bool:
        """Should the start be stored? On a timer, at half a window, and at the end.

        The timer asks again whatever was asked before: a checkpoint that got lost, or that the
        database refused, cannot leave the window full for ever.
        """
        if self._start == self._stored:
            return False
        if now - self._asked_at >= self._checkpoint_seconds:
            return True
        moved = self._start - self._asked
        return 2 * moved >= self._size or (moved > 0 and self._start == self._end)

    def checkpoint(self, now: float) -> Checkpoint:
        """What to store now. Call `flushed` when it has been committed."""
        self._asked = self._start
        self._asked_at = now
        return Checkpoint(self._start, self._behind, tuple(self._failed))

    def confirm_stored(self, start: int) -> None:
        """The checkpoint with this start is committed; news of an older one changes nothing."""
        if start > self._start:
            raise ValueError(f"start {start} was never asked to be stored")
        if start <= self._stored:
            return
        self._stored = start
        self._limit = min(self._end, start + self._size)
        del self._failed[: bisect_left(self._failed, start)]
