"""The executor of async items: an event loop in the main thread."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from drumline.handlers.sweep import Item
from drumline.runner.execute import Stopped
from drumline.runner.sweep.item_executor import ItemWork, Slot, format_item_error


class EventLoopExecutor:
    """Runs many items at a time. The loop itself cancels each at its timeout."""

    def __init__(self, work: ItemWork, parallel: int) -> None:
        self.work = work
        self.parallel = parallel
        self.slots: list[Slot] = []
        self.running: dict[asyncio.Task[None], int] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._asked_at: float | None = None
        """When the monitor asked the loop whether it runs; None once the loop has answered."""
        self.error: BaseException | None = None
        """An error outside of any item, or Stopped raised inside one."""

    def run(self) -> None:
        asyncio.run(self._main())

    def interrupt(self, slot: Slot) -> None:
        """Does nothing: there are no slots, and the loop enforces the timeouts."""

    def abort(self) -> None:
        raise Stopped  # ends the loop, which cancels the items

    def blocking_item(self) -> int | None:
        """The item that has blocked the loop for longer than an item's timeout."""
        if self.loop is None:
            return None
        now, asked_at = self.work.window.clock(), self._asked_at
        if asked_at is None:
            self._asked_at = now
            self._call(self._answer)
            return None
        if now - asked_at <= self.work.timeout:
            return None
        task = asyncio.current_task(self.loop)
        return None if task is None else self.running.get(task)

    def _answer(self) -> None:
        self._asked_at = None

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        window, changed = self.work.window, asyncio.Event()
        window.on_items_available = lambda: self._call(changed.set)
        try:
            while window.parallel == self.parallel:
                if self.error is not None:
                    raise self.error
                changed.clear()
                block = window.take_items(self.parallel - len(self.running))
                if block:
                    self._start(block, changed)
                elif window.is_exhausted() and not self.running:
                    return
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(window.wait_seconds()):
                            await changed.wait()
            await asyncio.gather(*self.running)
        finally:
            window.on_items_available = lambda: None

    def _call(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has just ended
            if self.loop is not None:
                self.loop.call_soon_threadsafe(callback)

    def _start(self, block: range, changed: asyncio.Event) -> None:
        texts = self.work.texts(block)
        for position, index in enumerate(block):
            text = None if texts is None else texts[position]
            task = asyncio.get_running_loop().create_task(self._run_item(index, text))
            self.running[task] = index
            task.add_done_callback(partial(self._item_ended, changed))

    def _item_ended(self, changed: asyncio.Event, task: asyncio.Task[None]) -> None:
        del self.running[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = error
        changed.set()

    async def _run_item(self, index: int, text: str | None) -> None:
        work, tries = self.work, 1
        while True:
            try:
                async with asyncio.timeout(work.timeout):
                    await work.process(Item(work.window, index, text, tries))
                break
            except Stopped:
                raise
            except BaseException as error:
                if work.window.aborted:
                    raise
                if tries > work.retry.retries:
                    work.window.mark_failed(index, format_item_error(error, work.timeout))
                    break
            if await self._closed_within(work.retry.backoff(tries, random.random())):
                return
            tries += 1
        work.window.finish_block(range(index, index + 1), index + 1)

    async def _closed_within(self, seconds: float) -> bool:
        """Wait before a retry, or until the sweep is stopped."""
        window = self.work.window
        until = window.clock() + seconds
        while not window.closed and (left := until - window.clock()) > 0:
            await asyncio.sleep(min(left, 0.25))
        return window.closed
