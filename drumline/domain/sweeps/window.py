"""The sliding window of a partition: which items are started, which are done, and the checkpoint.

Only a checkpoint of a partition is stored: a start, before which every item is done, and how many
of these failed. Two rules make that sufficient:

- The start moves only past items that are done, so no item is skipped.
- No item starts at or beyond the stored start + the window, so a crash repeats at most one window.

Items can be taken and reported in ranges: a no-op sweep then costs a few nanoseconds per item (one
byte each, set and searched in C), instead of a few hundred one by one.
"""

from __future__ import annotations

from bisect import bisect_left

from drumline.domain.sweeps.partition import Checkpoint

CHECKPOINT_SECONDS = 1.0
"""Between checkpoints, unless half a window is done earlier."""
MAX_FAILED_NAMED = 1_000
"""Failed items that one checkpoint names; further ones are only counted."""

RUNNING, DONE, FAILED = 0, 1, 2
_COMPACT = 4_096  # bytes of marks before the start that are not worth freeing


class Window:
    """Items [start, end) of a partition that resumes at its stored start."""

    __slots__ = (
        "_base",
        "_checkpoint_seconds",
        "_end",
        "_errors_before",
        "_errors_beyond",
        "_failed",
        "_limit",
        "_marks",
        "_max_failed_named",
        "_next",
        "_sent",
        "_sent_at",
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
        self._start = self._next = self._stored = self._sent = self._base = start
        self._end = end
        self._sent_at = now
        self._checkpoint_seconds = checkpoint_seconds
        self._marks = bytearray()  # of the items [_base, _next); marks before _start are unused
        self._errors_before = errors
        self._errors_beyond = 0
        self._failed: list[int] = []  # between the stored start and the start
        self._max_failed_named = max_failed_named
        self.resize(size)

    @property
    def start(self) -> int:
        """Every item before this one is done."""
        return self._start

    @property
    def stored(self) -> int:
        """The stored start, from which the partition resumes after a crash."""
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
        """All failures so far, before and beyond the start; compared with the error budget."""
        return self._errors_before + self._errors_beyond

    @property
    def idle(self) -> bool:
        """No started item is still running."""
        return self._start == self._next

    @property
    def finished(self) -> bool:
        return self._start == self._end

    def take(self, wanted: int) -> range:
        """Take the next items: at most `wanted`, none if the window is full."""
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
        """Return the taken items from `start` on, of which none has started."""
        if not self._start <= start <= self._next:
            raise ValueError(f"item {start} is not taken")
        at = start - self._base
        if self._marks.count(RUNNING, at) != self._next - start:
            raise ValueError(f"an item from {start} on has ended: it cannot be given back")
        del self._marks[at:]
        self._next = start

    def mark_done(self, index: int) -> bool:
        """Mark an item as done. False: it had ended before, by its timeout, and stays as it was."""
        return self._end_one(index, DONE)

    def mark_failed(self, index: int) -> bool:
        """Mark an item as failed after its last attempt. False: it had ended before."""
        return self._end_one(index, FAILED)

    def _end_one(self, index: int, mark: int) -> bool:
        if index >= self._next:
            raise ValueError(f"item {index} was never started")
        at = index - self._base
        if index < self._start or self._marks[at]:
            return False
        self._marks[at] = mark
        if mark == FAILED:
            self._errors_beyond += 1
        if index == self._start:
            self._advance()
        return True

    def mark_range_done(self, start: int, stop: int) -> int:
        """Mark items as done, except those that had ended before; the number of those marked."""
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
        else:  # rare: failures inside the range keep their marks
            self._marks[low:high] = self._marks[low:high].replace(b"\0", b"\1")
        if start == self._start:
            self._advance()
        return running

    def _advance(self) -> None:
        """Move the start to the first item that is still running."""
        marks = self._marks
        at = self._start - self._base
        stop = marks.find(RUNNING, at)
        if stop < 0:
            stop = len(marks)
        if self._errors_beyond:
            self._pass_failures(at, stop)
        self._start = self._base + stop
        if stop > _COMPACT and 2 * stop >= len(marks):
            del marks[:stop]
            self._base += stop

    def _pass_failures(self, at: int, stop: int) -> None:
        passed = self._marks.count(FAILED, at, stop)
        self._errors_beyond -= passed
        self._errors_before += passed
        for _ in range(min(passed, self._max_failed_named - len(self._failed))):
            at = self._marks.find(FAILED, at, stop) + 1
            self._failed.append(self._base + at - 1)

    def resize(self, size: int) -> None:
        """Change the size. Items that were started under a larger size continue; no new item starts
        until the stored start is close enough."""
        if size < 1:
            raise ValueError(f"a window must hold at least one item, not {size}")
        self._size = size
        self._limit = min(self._end, self._stored + size)

    def checkpoint_due(self, now: float) -> bool:
        """Whether the start should be stored: after a time, at half a window, and at the end.

        After the time a checkpoint is due even if the same one was sent before: a checkpoint that
        is lost, or that the database refuses, must not leave the window full.
        """
        if self._start == self._stored:
            return False
        if now - self._sent_at >= self._checkpoint_seconds:
            return True
        moved = self._start - self._sent
        return 2 * moved >= self._size or (moved > 0 and self._start == self._end)

    def checkpoint(self, now: float) -> Checkpoint:
        """The progress to store now. Call confirm_stored() once it is committed."""
        self._sent = self._start
        self._sent_at = now
        return Checkpoint(self._start, self._errors_before, tuple(self._failed))

    def confirm_stored(self, start: int) -> None:
        """The checkpoint with this start is committed; an older one has no effect."""
        if start > self._start:
            raise ValueError(f"start {start} was never in a checkpoint")
        if start <= self._stored:
            return
        self._stored = start
        self._limit = min(self._end, start + self._size)
        del self._failed[: bisect_left(self._failed, start)]
