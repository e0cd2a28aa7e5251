"""What all executors of items have in common: the work, the slots, and an item's failure."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from drumline.domain.policy import Retry
from drumline.handlers.sweep import Item
from drumline.runner.sweep.item_window import ItemWindow
from drumline.sweep_items.reader import Items


class ItemTimedOut(BaseException):
    """Raised inside an item at its timeout. Not an Exception: `except Exception` must not
    swallow it."""


class Slot:
    """The item that one thread runs now. The thread writes here, the partition's monitor reads."""

    __slots__ = (
        "attempt",
        "block_start",
        "block_started",
        "busy",
        "end_block",
        "index",
        "interrupted",
        "lock",
        "timed_out",
    )

    def __init__(self) -> None:
        self.index = -1
        self.block_start = 0
        """The first index of the block. Written before `index`, so a reader that finds the same
        index before and after reading this has a matching pair."""
        self.attempt = 1
        self.busy = False
        """An item is running; false while the thread waits for items or before a retry."""
        self.block_started = 0.0
        """The time at which the thread started its block."""
        self.end_block = False
        """Leave the rest of the block: it takes too long, or an item has stopped the sweep."""
        self.timed_out: tuple[int, int] | None = None
        """Set by the monitor: the item and attempt that has timed out."""
        self.interrupted = False
        """Set by the monitor: an exception was sent to this thread and has not been raised yet."""
        self.lock = threading.Lock()
        """Held while an exception is sent, and while the thread leaves its block."""

    def leave_block(self) -> None:
        self.end_block = True

    def item_raised(self, error: BaseException) -> None:
        """Record that the item has ended with this error."""
        self.busy = False
        if isinstance(error, ItemTimedOut):
            self.interrupted = False

    def done_items(self) -> range:
        """The items of the present block that are done."""
        index = self.index
        start = self.block_start
        return range(start, index) if index == self.index else range(0)

    @property
    def current(self) -> tuple[int, int] | None:
        return (self.index, self.attempt) if self.busy else None


class ItemWork:
    """What an executor needs to run items."""

    def __init__(
        self,
        window: ItemWindow,
        process: Callable[[Item], Any],
        retry: Retry,
        timeout: float,
        items: Items | None,
    ) -> None:
        self.window = window
        self.process = process
        self.retry = retry
        self.timeout = timeout
        self.items = items

    def texts(self, block: range) -> Sequence[str] | None:
        """The lines of these items, if the sweep has a source of items."""
        return None if self.items is None else self.items.read(block.start, block.stop)


class ItemExecutor(Protocol):
    """Runs items until none may start, or until a different number must run at a time."""

    slots: list[Slot]

    def run(self) -> None: ...

    def interrupt(self, slot: Slot) -> None:
        """Raise ItemTimedOut in the item that has timed out, if it still runs."""

    def abort(self) -> None:
        """End all items now. Called in the main thread."""

    def blocking_item(self) -> int | None:
        """The item that keeps all others from running, if there is one."""


def format_item_error(error: BaseException, timeout: float) -> str:
    """The failure of an item as a line of the data log."""
    if isinstance(error, ItemTimedOut | TimeoutError) and not str(error):
        return f"timed out after {timeout:g} s"
    try:
        return traceback.format_exception_only(error)[-1].strip()
    except Exception:  # str() of the error itself raised
        return type(error).__name__
