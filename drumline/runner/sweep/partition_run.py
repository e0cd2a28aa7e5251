"""One run of one partition, from its first item to its last checkpoint."""

from __future__ import annotations

from drumline.domain.sweeps.partition import PartitionInfo, PartitionResult
from drumline.errors import Conflict
from drumline.handlers.base import RegisteredHandler
from drumline.handlers.sweep_registry import PartitionHandler
from drumline.runner.execute import RunLost, Stopped
from drumline.runner.sweep.event_loop_executor import EventLoopExecutor
from drumline.runner.sweep.item_executor import ItemExecutor, ItemWork
from drumline.runner.sweep.item_window import ItemWindow
from drumline.runner.sweep.partition_monitor import KeeperPipe, PartitionMonitor
from drumline.runner.sweep.thread_executors import MainThreadExecutor, ThreadsExecutor
from drumline.sweep_items.reader import Items
from drumline.task import Task


class PartitionRun:
    """Runs in the main thread; `stop` is called from a signal handler."""

    def __init__(
        self,
        task: Task,
        registered: RegisteredHandler,
        partition: PartitionInfo,
        pipe: KeeperPipe,
    ) -> None:
        traits, handler = registered.spec.sweep, registered.handler
        if traits is None or not isinstance(handler, PartitionHandler):
            raise Conflict(reason=f"{registered.spec.key} does not handle sweeps")
        self.partition = partition
        self.traits = traits
        self.process = handler.sweep.process
        self.window = ItemWindow(task.id, task.fence, partition, is_async=traits.is_async)
        self.monitor = PartitionMonitor(self.window, pipe, traits.item_timeout)
        self.executor: ItemExecutor | None = None

    def run(self) -> PartitionResult:
        self.monitor.start()
        items = None
        try:
            items = self._open_items()
            work = ItemWork(
                self.window,
                self.process,
                self.traits.item_retry,
                self.traits.item_timeout,
                items,
            )
            while not self.window.is_exhausted():
                self.monitor.executor = self.executor = self._make_executor(work)
                self.executor.run()
        except BaseException:
            self.executor = None
            self.monitor.abandon()
            raise
        finally:
            self.executor = None  # nothing is left that `stop` could interrupt
            if items is not None:
                items.close()
        if self.window.aborted:
            self.monitor.abandon()
            raise Stopped
        self.monitor.finish()
        if self.monitor.error is not None:
            raise self.monitor.error
        if self.monitor.lost:
            raise RunLost
        return self.window.result()

    def _open_items(self) -> Items | None:
        """The source of items, if there is one; refused if it is not the one that was counted."""
        if self.partition.source is None:
            return None
        from drumline.handlers.item_sources import open_source  # imports aiohttp

        opened = open_source(
            self.partition.sweep_id, self.partition.source, lambda: self.window.closed
        )
        return opened.items

    def _make_executor(self, work: ItemWork) -> ItemExecutor:
        parallel = self.window.parallel
        if self.traits.is_async:
            return EventLoopExecutor(work, parallel)
        return MainThreadExecutor(work) if parallel == 1 else ThreadsExecutor(work, parallel)

    def stop(self) -> None:
        """End the run now."""
        self.window.abort()
        if self.executor is not None:
            self.executor.abort()
