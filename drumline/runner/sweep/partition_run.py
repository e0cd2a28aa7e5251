"""One run of one partition: opened, run by a crew, watched by a pulse, and its end."""

from __future__ import annotations

from drumline.domain.sweeps.partition import PartitionInfo, PartitionResult
from drumline.errors import Conflict
from drumline.handlers.base import RegisteredHandler
from drumline.handlers.sweep_registry import PartitionHandler
from drumline.runner.execute import RunLost, Stopped
from drumline.runner.sweep.event_loop_executor import EventLoopExecutor
from drumline.runner.sweep.item_executor import (
    ItemExecutor,
    ItemWork,
    MainThreadExecutor,
    ThreadsExecutor,
)
from drumline.runner.sweep.item_window import ItemWindow
from drumline.runner.sweep.partition_monitor import KeeperPipe, PartitionMonitor
from drumline.sweep_items.reader import Items
from drumline.task import Task


class PartitionRun:
    """From opened to ended. Lives in the main thread; `ask` is called from a signal handler."""

    def __init__(
        self, task: Task, registered: RegisteredHandler, part: PartitionInfo, pipe: KeeperPipe
    ) -> None:
        traits, handler = registered.spec.sweep, registered.handler
        if traits is None or not isinstance(handler, PartitionHandler):
            raise Conflict(reason=f"{registered.spec.key} does not handle sweeps")
        self.part = part
        self.traits = traits
        self.process = handler.sweep.process
        self.feeder = ItemWindow(task.id, task.fence, part, is_async=traits.is_async)
        self.pulse = PartitionMonitor(self.feeder, pipe, traits.item_timeout)
        self.crew: ItemExecutor | None = None

    def run(self) -> PartitionResult:
        self.pulse.start()
        items = None
        try:
            items = self._items()
            work = ItemWork(
                self.feeder,
                self.process,
                self.traits.item_retry,
                self.traits.item_timeout,
                items,
            )
            while not self.feeder.is_over():
                self.pulse.crew = self.crew = self._crew(work)
                self.crew.run()
        except BaseException:
            self.crew = None
            self.pulse.abandon()
            raise
        finally:
            self.crew = None  # nothing is left for an ask to strike into
            if items is not None:
                items.close()
        if self.feeder.aborted:
            self.pulse.abandon()
            raise Stopped
        self.pulse.finish()
        if self.pulse.error is not None:
            raise self.pulse.error
        if self.pulse.lost:
            raise RunLost
        return self.feeder.end()

    def _items(self) -> Items | None:
        """The source, if there is one: it must be the one that was counted."""
        if self.part.source is None:
            return None
        from drumline.handlers.item_sources import open_source  # it may need an HTTP library

        opened = open_source(self.part.sweep_id, self.part.source, lambda: self.feeder.closed)
        return opened.items

    def _crew(self, work: ItemWork) -> ItemExecutor:
        parallel = self.feeder.parallel
        if self.traits.is_async:
            return EventLoopExecutor(work, parallel)
        return MainThreadExecutor(work) if parallel == 1 else ThreadsExecutor(work, parallel)

    def stop(self) -> None:
        """End the run now. Called from a signal handler."""
        self.feeder.abort()
        if self.crew is not None:
            self.crew.abort()
