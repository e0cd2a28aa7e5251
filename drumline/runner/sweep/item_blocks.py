"""The loop of a thread that runs sync items, in blocks of some milliseconds.

Between two items of a block there is no lock and no clock.
"""

from __future__ import annotations

import random
import time

from drumline.handlers.sweep import Item
from drumline.runner.execute import Stopped
from drumline.runner.sweep.item_executor import ItemTimedOut, ItemWork, Slot, format_item_error
from drumline.runner.sweep.item_window import ItemWindow

BLOCK_SECONDS = 0.02
MAX_BLOCK_SIZE = 65_536
MAX_GROWTH = 8
INTERRUPT_MILLISECONDS = 20
"""Within this time Python raises an exception that was sent to a thread."""


def run_blocks(work: ItemWork, slot: Slot, parallel: int) -> None:
    """Take blocks and run them, each as large as fits into BLOCK_SECONDS."""
    window, size = work.window, 1
    window.thread_state.leave_block = slot.leave_block
    while block := window.wait_for_items(size, parallel):
        slot.block_started = started = window.clock()
        slot.end_block = False
        done = _run_block(work, slot, block)
        _end_block(slot)
        window.finish_block(block, done)
        spent = max(1e-9, window.clock() - started)
        fitting = int((done - block.start) * BLOCK_SECONDS / spent)
        size = max(1, min(fitting, size * MAX_GROWTH, MAX_BLOCK_SIZE))


def _run_block(work: ItemWork, slot: Slot, block: range) -> int:
    """Run the items of a block; return the index before which all are done."""
    window, process = work.window, work.process
    texts = work.texts(block)
    first, stop = block.start, block.stop
    slot.block_start = first
    slot.index, slot.attempt = first - 1, 1
    while slot.index + 1 < stop:
        # If the interrupt comes between two items, the loop goes on after the item that was done.
        # The index is set inside of the inner `try`, so that an item that did not start is never
        # taken for done.
        try:
            for index in range(slot.index + 1, stop):
                try:
                    slot.index = index
                    slot.busy = True
                    process(Item(window, index, None if texts is None else texts[index - first]))
                    slot.busy = False
                except Stopped:
                    raise
                except BaseException as error:
                    slot.item_raised(error)
                    if window.aborted:
                        return index
                    text = None if texts is None else texts[index - first]
                    if not _retry_item(work, slot, index, text, error):
                        return index
                    if window.closed:
                        return index + 1
                if slot.end_block:
                    return index + 1
        except ItemTimedOut as error:
            slot.item_raised(error)
            if slot.timed_out == (slot.index, slot.attempt):
                window.mark_failed(slot.index, format_item_error(error, work.timeout))
            slot.attempt = 1
    return stop


def _retry_item(
    work: ItemWork, slot: Slot, index: int, text: str | None, error: BaseException
) -> bool:
    """Retry an item by its policy; if it does not succeed, count it as failed. False: the sweep
    was stopped before the item was done."""
    window, retry, tries = work.window, work.retry, 1
    while True:
        # A timeout that was meant for the item before is no failure of this one.
        if not isinstance(error, ItemTimedOut) or slot.timed_out == (index, slot.attempt):
            if tries > retry.retries:
                break
            if _closed_within(window, retry.backoff(tries, random.random())):
                return False
            tries += 1
        slot.attempt += 1
        try:
            slot.busy = True
            work.process(Item(window, index, text, tries))
            slot.busy = False
            slot.attempt = 1
            return True
        except Stopped:
            raise
        except BaseException as latest:
            slot.item_raised(latest)
            if window.aborted:
                return False
            error = latest
    slot.attempt = 1
    window.mark_failed(index, format_item_error(error, work.timeout))
    return True


def _end_block(slot: Slot) -> None:
    """Leave the block: no interrupt may be raised outside of it, so wait for one that was sent."""
    while True:
        try:
            with slot.lock:
                slot.index = -1
            # Python raises it within its next instructions, unless the item has swallowed it.
            for _ in range(INTERRUPT_MILLISECONDS):
                if not slot.interrupted:
                    break
                time.sleep(0.001)
            slot.interrupted = False
            return
        except ItemTimedOut:
            slot.interrupted = False


def _closed_within(window: ItemWindow, seconds: float) -> bool:
    """Wait before a retry, or until the sweep is stopped."""
    with window.changed:
        return window.changed.wait_for(lambda: window.closed, seconds)
