"""Who runs the async items of a partition: an event loop in the main thread."""

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
    """Many async items at a time. Each is cancelled at its timeout by the loop itself."""

    def __init__(self, work: ItemWork, parallel: int) -> None:
        self.work = work
        self.parallel = parallel
        self.slots: list[Slot] = []
        self.running: dict[asyncio.Task[None], int] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._ticked = work.feeder.clock()
        self.error: BaseException | None = None
        """What went wrong outside of any item, or an ask that struck into one."""

    def run(self) -> None:
        asyncio.run(self._main())

    def interrupt(self, slot: Slot) -> None:
        """It has no slots: the loop holds the timeouts."""

    def abort(self) -> None:
        raise Stopped  # out of the loop, which cancels what runs in it

    def blocked(self) -> int | None:
        """An item that does not let go of the loop for longer than it may run at all."""
        if self.loop is None or self.work.feeder.clock() - self._ticked <= self.work.timeout:
            return None
        task = asyncio.current_task(self.loop)
        return None if task is None else self.running.get(task)

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        feeder, news = self.work.feeder, asyncio.Event()
        feeder.listener = lambda: self._call(news.set)
        try:
            while feeder.parallel == self.parallel:
                self._ticked = feeder.clock()
                if self.error is not None:
                    raise self.error
                news.clear()
                block = feeder.take_now(self.parallel - len(self.running))
                if block:
                    self._begin(block, news)
                elif feeder.is_over() and not self.running:
                    return
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(feeder.patience()):
                            await news.wait()
            await asyncio.gather(*self.running)
        finally:
            feeder.listener = lambda: None

    def _call(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has just ended
            if self.loop is not None:
                self.loop.call_soon_threadsafe(callback)

    def _begin(self, block: range, news: asyncio.Event) -> None:
        texts = self.work.texts(block)
        for place, index in enumerate(block):
            text = None if texts is None else texts[place]
            task = asyncio.get_running_loop().create_task(self._one(index, text))
            self.running[task] = index
            task.add_done_callback(partial(self._ended, news))

    def _ended(self, news: asyncio.Event, task: asyncio.Task[None]) -> None:
        del self.running[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = error
        news.set()

    async def _one(self, index: int, text: str | None) -> None:
        work, tries = self.work, 1
        while True:
            try:
                async with asyncio.timeout(work.timeout):
                    await work.process(Item(work.feeder, index, text, tries))
                break
            except Stopped:
                raise
            except BaseException as error:
                if work.feeder.aborted:
                    raise
                if tries > work.retry.retries:
                    work.feeder.failed(index, format_item_error(error, work.timeout))
                    break
            if await self._stopped_within(work.retry.backoff(tries, random.random())):
                return
            tries += 1
        work.feeder.report(range(index, index + 1), index + 1)

    async def _stopped_within(self, seconds: float) -> bool:
        until = self.work.feeder.clock() + seconds
        while not self.work.feeder.closed and (left := until - self.work.feeder.clock()) > 0:
            await asyncio.sleep(min(left, 0.25))
        return self.work.feeder.closed
