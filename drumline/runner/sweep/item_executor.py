"""Who runs the sync items of a partition: the main thread alone, or several threads.

They run in blocks of some milliseconds: between two items of a block there is no lock and
no clock. What a member does at the moment is in its `Slot`, for the watch to see.
"""

from __future__ import annotations

import ctypes
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from drumline.domain.policy import Retry
from drumline.handlers.sweep import Item
from drumline.runner.execute import Stopped
from drumline.runner.sweep.item_window import ItemWindow
from drumline.sweep_items.reader import Items

BLOCK_SECONDS = 0.02
LARGEST_BLOCK = 65_536
GROWTH = 8
LANDING = 20
"""Milliseconds in which an exception that was sent to a thread must have come up in it."""
INTERRUPT = signal.SIGRTMIN + 1
"""Sent by the watch to the main thread, to strike into an item that has timed out."""


class ItemTimedOut(BaseException):
    """Raised inside an item at its timeout. Not an Exception: `except Exception` must not
    swallow it."""


class Slot:
    """What one member of a crew does now. The member writes here, and the watch reads."""

    __slots__ = ("attempt", "begun", "busy", "first", "guard", "halt", "index", "late", "struck")

    def __init__(self) -> None:
        self.index = -1
        self.first = 0
        """Of its block. Set before the index is, so whoever reads the same index twice and this in
        between has what belongs together."""
        self.attempt = 1
        self.busy = False
        """It runs an item: neither waits for one nor pauses before a retry."""
        self.begun = 0.0
        """When it began its block."""
        self.halt = False
        """Leave the rest of the block: it takes too long, or its item has stopped the sweep."""
        self.late: tuple[int, int] | None = None
        """Set by the watch: the item and attempt that has timed out."""
        self.struck = False
        """Set by the watch: an exception is on its way to this thread."""
        self.guard = threading.Lock()
        """Held while an exception is sent, and while the member leaves its block."""

    def leave_block(self) -> None:
        self.halt = True

    def caught(self, error: BaseException) -> None:
        """Its item has raised this."""
        self.busy = False
        if isinstance(error, ItemTimedOut):
            self.struck = False

    def passed(self) -> range:
        """The items of its block that are over."""
        index = self.index
        first = self.first
        return range(first, index) if index == self.index else range(0)

    @property
    def doing(self) -> tuple[int, int] | None:
        return (self.index, self.attempt) if self.busy else None


class ItemWork:
    """What all members need to run items."""

    def __init__(
        self,
        feeder: ItemWindow,
        process: Callable[[Item], Any],
        retry: Retry,
        timeout: float,
        items: Items | None,
    ) -> None:
        self.feeder = feeder
        self.process = process
        self.retry = retry
        self.timeout = timeout
        self.items = items

    def texts(self, block: range) -> Sequence[str] | None:
        return None if self.items is None else self.items.read(block.start, block.stop)


class ItemExecutor(Protocol):
    """Runs items until none may be started, or until another number is to run at a time."""

    slots: list[Slot]

    def run(self) -> None: ...

    def interrupt(self, slot: Slot) -> None:
        """Strike into an item that has timed out, if it is still the one."""

    def abort(self) -> None:
        """In the main thread: end all items now."""

    def blocked(self) -> int | None:
        """The item that holds up all others, if one does."""


class MainThreadExecutor:
    """One item at a time, in the main thread: nothing is faster, and a signal reaches into it."""

    def __init__(self, work: ItemWork) -> None:
        self.work = work
        self.slots = [Slot()]
        signal.signal(INTERRUPT, self._struck)

    def run(self) -> None:
        run_blocks(self.work, self.slots[0], 1)

    def interrupt(self, slot: Slot) -> None:
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, INTERRUPT)

    def abort(self) -> None:
        raise Stopped

    def blocked(self) -> int | None:
        return None

    def _struck(self, *_: object) -> None:
        slot = self.slots[0]
        if slot.busy and slot.late == slot.doing:
            raise ItemTimedOut


class ThreadsExecutor:
    """Several sync items at a time. A thread can only be struck while it runs Python code."""

    def __init__(self, work: ItemWork, parallel: int) -> None:
        self.work = work
        self.parallel = parallel
        self.slots = [Slot() for _ in range(parallel)]
        self.idents: dict[Slot, int] = {}
        self.error: BaseException | None = None
        """What went wrong outside of any item: the source has changed, say."""

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._member, args=(slot,), daemon=True) for slot in self.slots
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # so that a signal finds the main thread awake
        if self.error is not None:
            raise self.error

    def _member(self, slot: Slot) -> None:
        self.idents[slot] = threading.get_ident()
        try:
            run_blocks(self.work, slot, self.parallel)
        except BaseException as error:
            self.error = error
            self.work.feeder.close()

    def interrupt(self, slot: Slot) -> None:
        with slot.guard:
            if slot.struck or slot.late != slot.doing:
                return
            slot.struck = True
            ident = ctypes.c_ulong(self.idents[slot])
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(ItemTimedOut))

    def abort(self) -> None:
        for slot in self.slots:
            slot.late = slot.doing
            if slot.late is not None:
                self.interrupt(slot)

    def blocked(self) -> int | None:
        return None


def run_blocks(work: ItemWork, slot: Slot, parallel: int) -> None:
    """Take blocks and run them, each as large as fits into some milliseconds."""
    feeder, size = work.feeder, 1
    feeder.here.leave_block = slot.leave_block
    while block := feeder.take(size, parallel):
        slot.begun = begun = feeder.clock()
        slot.halt = False
        done = _run_block(work, slot, block)
        _leave(slot)
        feeder.report(block, done)
        spent = max(1e-9, feeder.clock() - begun)
        fitting = int((done - block.start) * BLOCK_SECONDS / spent)
        size = max(1, min(fitting, size * GROWTH, LARGEST_BLOCK))


def _run_block(work: ItemWork, slot: Slot, block: range) -> int:
    """Run the items of a block; the index before which all are over."""
    feeder, process = work.feeder, work.process
    texts = work.texts(block)
    first, stop = block.start, block.stop
    slot.first = first
    slot.index, slot.attempt = first - 1, 1
    while slot.index + 1 < stop:
        # Struck between two items, it goes on behind the one that was over. An index is noted
        # inside of the inner `try`: none is taken for done that was not begun.
        try:
            for index in range(slot.index + 1, stop):
                try:
                    slot.index = index
                    slot.busy = True
                    process(Item(feeder, index, None if texts is None else texts[index - first]))
                    slot.busy = False
                except Stopped:
                    raise
                except BaseException as error:
                    slot.caught(error)
                    if feeder.aborted:
                        return index
                    text = None if texts is None else texts[index - first]
                    if not _again(work, slot, index, text, error):
                        return index
                    if feeder.closed:
                        return index + 1
                if slot.halt:
                    return index + 1
        except ItemTimedOut as error:
            slot.caught(error)
            if slot.late == (slot.index, slot.attempt):
                feeder.failed(slot.index, format_item_error(error, work.timeout))
            slot.attempt = 1
    return stop


def _again(work: ItemWork, slot: Slot, index: int, text: str | None, error: BaseException) -> bool:
    """An item has failed: try it again, as often as its policy says, then count it. False: the
    sweep was stopped before it was over."""
    feeder, retry, tries = work.feeder, work.retry, 1
    while True:
        ours = not isinstance(error, ItemTimedOut) or slot.late == (index, slot.attempt)
        if ours:  # else it was meant for the item before
            if tries > retry.retries:
                break
            if _stopped_within(feeder, retry.backoff(tries, random.random())):
                return False
            tries += 1
        slot.attempt += 1
        try:
            slot.busy = True
            work.process(Item(feeder, index, text, tries))
            slot.busy = False
            slot.attempt = 1
            return True
        except Stopped:
            raise
        except BaseException as again:
            slot.caught(again)
            if feeder.aborted:
                return False
            error = again
    slot.attempt = 1
    feeder.failed(index, format_item_error(error, work.timeout))
    return True


def _leave(slot: Slot) -> None:
    """The block is over: no exception may strike outside of it, and one that is on its way is
    waited for."""
    while True:
        try:
            with slot.guard:
                slot.index = -1
            # It comes with the next lines of Python that we run, unless the item swallowed it.
            for _ in range(LANDING):
                if not slot.struck:
                    break
                time.sleep(0.001)
            slot.struck = False
            return
        except ItemTimedOut:
            slot.struck = False


def _stopped_within(feeder: ItemWindow, seconds: float) -> bool:
    """Wait before a retry, or until the sweep is stopped."""
    with feeder.changed:
        return feeder.changed.wait_for(lambda: feeder.closed, seconds)


def format_item_error(error: BaseException, timeout: float) -> str:
    """What the data log says of an item's failure."""
    if isinstance(error, ItemTimedOut | TimeoutError) and not str(error):
        return f"timed out after {timeout:g} s"
    try:
        return traceback.format_exception_only(error)[-1].strip()
    except Exception:  # one that cannot say what it is
        return type(error).__name__
