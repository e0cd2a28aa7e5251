"""The executors of items, each with its monitor, and with a keeper in this process."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from drumline.domain.policy import Retry
from drumline.domain.states import TaskState
from drumline.domain.sweeps.partition import (
    Checkpoint,
    PartitionDirectives,
    PartitionInfo,
    PartitionResult,
)
from drumline.domain.task import DueTask, TaskBody, encode_task_body
from drumline.errors import Conflict
from drumline.handlers.base import RegisteredHandler
from drumline.handlers.sweep import Item, Sweep
from drumline.handlers.sweep_registry import sweep_handlers
from drumline.runner.execute import RunLost, Stopped
from drumline.runner.frames import (
    Channel,
    CheckpointStored,
    Frame,
    StoreCheckpoint,
    ToKeeper,
    ToRunner,
)
from drumline.runner.sweep import partition_monitor
from drumline.runner.sweep.event_loop_executor import EventLoopExecutor
from drumline.runner.sweep.item_executor import ItemWork
from drumline.runner.sweep.item_window import ItemWindow
from drumline.runner.sweep.partition_monitor import KeeperPipe
from drumline.runner.sweep.partition_run import PartitionRun
from drumline.task import Task

DIRECTIVES = PartitionDirectives(
    stop=False, rate=None, parallel=1, serial=True, budget=None, errors_at_start=0, other_errors=0
)
NO_RETRY = Retry()


def changed(**values: Any) -> PartitionDirectives:
    return PartitionDirectives(
        **{name: getattr(DIRECTIVES, name) for name in DIRECTIVES.__struct_fields__} | values
    )


class Keeper:
    """Accepts every checkpoint and answers with directives."""

    def __init__(self, directives: PartitionDirectives = DIRECTIVES) -> None:
        ours, theirs = socket.socketpair()
        self.here = Channel(ours, ToKeeper)
        self.there = Channel(theirs, ToRunner)
        self.directives: Callable[[Checkpoint], PartitionDirectives | None] = lambda _: directives
        self.checkpoints: list[Checkpoint] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def pipe(self) -> KeeperPipe:
        return KeeperPipe(self.there.end.fileno(), self.there.send, self.there.receive)

    def _serve(self) -> None:
        with suppress(OSError):
            while (frames := self.here.receive()) is not None:
                for frame in frames:
                    assert isinstance(frame, StoreCheckpoint)
                    checkpoint = frame.checkpoint
                    self.checkpoints.append(checkpoint)
                    answer = self.directives(checkpoint)
                    ours = answer is not None
                    reply: Frame = CheckpointStored(frame.task_id, checkpoint.start, ours, answer)
                    self.here.send(reply)

    def close(self) -> None:
        self.here.end.close()
        self.there.end.close()


def handler(
    process: Callable[[Item], Any], timeout: float = 20.0, retry: Retry = NO_RETRY
) -> RegisteredHandler:
    made = Sweep()
    made.type = "t"  # type: ignore[misc]
    made.process = process  # type: ignore[method-assign, assignment]
    made.timeout = timeout  # type: ignore[misc]
    made.retry = retry  # type: ignore[misc]
    return sweep_handlers(made, "a test", process)[0]


BODY = encode_task_body(TaskBody("here", None, None, None, None, None, None, None, None, None))
TASK = Task(
    DueTask(
        1, 0, TaskState.PENDING, "t", "sweep", 5, 0, 0, None, 0, 0, 0, 0, None, None, None, BODY
    )
)


def run(
    total: int,
    handled: RegisteredHandler,
    directives: PartitionDirectives = DIRECTIVES,
    keeper: Keeper | None = None,
    before: Callable[[PartitionRun], None] = lambda run: None,
) -> tuple[PartitionResult, Keeper]:
    keeper = keeper or Keeper(directives)
    info = PartitionInfo(1, "s", 0, total, 0, 0, (), None, None, directives)
    try:
        partition_run = PartitionRun(TASK, handled, info, keeper.pipe)
        before(partition_run)
        return partition_run.run(), keeper
    finally:
        keeper.close()


class RunItems:
    """Counts how often each item ran, and the most items that ran at a time."""

    def __init__(self) -> None:
        self.items: Counter[int] = Counter()
        self.most = self.now = 0
        self.lock = threading.Lock()
        self.met = threading.Condition()

    def begin(self, item: Item) -> None:
        with self.lock:
            self.items[item.index] += 1
            self.now += 1
            self.most = max(self.most, self.now)

    def end(self) -> None:
        with self.lock:
            self.now -= 1

    def sync(self, item: Item) -> None:
        self.begin(item)
        if item.index % 100 == 0:
            time.sleep(0.001)
        self.end()

    def together(self, item: Item) -> None:
        """Waits until four items run at a time."""
        self.begin(item)
        with self.met:
            self.met.notify_all()
            assert self.met.wait_for(lambda: self.most == 4, 20)
        self.end()

    async def loops(self, item: Item) -> None:
        self.begin(item)
        await asyncio.sleep(0.001)
        self.end()


@pytest.mark.parametrize(
    ("kind", "parallel", "total"),
    [("sync", 1, 30_000), ("together", 4, 5_000), ("loops", 20, 2_000)],
)
def test_every_item_runs_once_and_parallel_items_at_a_time(
    kind: str, parallel: int, total: int
) -> None:
    seen = RunItems()
    end, keeper = run(total, handler(getattr(seen, kind)), changed(parallel=parallel))
    assert end == PartitionResult(total, 0, True)
    assert len(seen.items) == total and set(seen.items.values()) == {1}
    assert seen.most == parallel
    starts = [checkpoint.start for checkpoint in keeper.checkpoints]
    assert starts == sorted(starts) and starts[-1] == total


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("parallel", [1, 3])
def test_failures_are_retried_then_counted(parallel: int, is_async: bool) -> None:
    tries: Counter[int] = Counter()

    def work(item: Item) -> None:
        tries[item.index] += 1
        assert item.attempt == tries[item.index]
        if item.index == 5 or (item.index == 7 and item.attempt < 3):
            raise SystemExit(f"item {item.index}")

    async def later(item: Item) -> None:
        work(item)

    retry = Retry(retries=2, delay=0.01)
    end, keeper = run(
        20, handler(later if is_async else work, retry=retry), changed(parallel=parallel)
    )
    assert end == PartitionResult(20, 1, True)
    assert (tries[5], tries[7], tries[8]) == (3, 3, 1)
    assert sum((checkpoint.failed for checkpoint in keeper.checkpoints), ()) == (5,)
    (line,) = [line for checkpoint in keeper.checkpoints for line in checkpoint.log]
    assert (line.item, line.message) == (5, "failed: SystemExit: item 5")


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_sync_item_is_interrupted_at_its_timeout(parallel: int) -> None:
    """Even if it swallows every Exception; the other items succeed."""

    def work(item: Item) -> None:
        if item.index == 4:
            while True:
                with suppress(Exception):
                    time.sleep(0.01)

    began = time.monotonic()
    end, keeper = run(12, handler(work, timeout=0.2), changed(parallel=parallel))
    assert end == PartitionResult(12, 1, True)
    assert 0.2 < time.monotonic() - began < 2.0
    (line,) = [line for checkpoint in keeper.checkpoints for line in checkpoint.log]
    assert (line.item, line.message) == (4, "failed: timed out after 0.2 s")


def test_an_async_item_is_cancelled_at_its_timeout() -> None:
    cancelled = []

    async def work(item: Item) -> None:
        if item.index == 4:
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.append(item.index)

    end, _ = run(12, handler(work, timeout=0.1), changed(parallel=3))
    assert end == PartitionResult(12, 1, True)
    assert cancelled == [4]


def test_items_that_end_just_at_their_timeout_do_no_harm() -> None:
    """The exception may be raised between two items, or in the next one."""
    seen: Counter[int] = Counter()

    def work(item: Item) -> None:
        seen[item.index] += 1
        time.sleep(0.05 if item.index % 2 else 0)

    end, _ = run(60, handler(work, timeout=0.05), changed(parallel=6))
    assert end.done and end.start == 60
    assert set(seen) == set(range(60)), "none is skipped"


def test_an_item_that_swallows_its_timeout_and_ends_has_not_failed() -> None:
    def work(item: Item) -> None:
        with suppress(BaseException):
            for _ in range(30 if item.index == 4 else 0):
                time.sleep(0.01)

    end, _ = run(30, handler(work, timeout=0.1), changed(parallel=3))
    assert end == PartitionResult(30, 0, True)


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_an_item_that_cannot_be_stopped_is_reported(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real keeper then kills the runner; here the item ends by itself in the end."""
    monkeypatch.setattr(partition_monitor, "GRACE", 0.1)
    keeper = Keeper()
    reported = threading.Event()

    def work(item: Item) -> None:
        while item.index == 3 and not reported.wait(0.01):
            pass

    def stubborn(item: Item) -> None:
        while not reported.is_set():
            with suppress(BaseException):
                work(item)
                return

    async def blocking(item: Item) -> None:
        work(item)

    def answer(checkpoint: Checkpoint) -> PartitionDirectives:
        if checkpoint.stuck:
            reported.set()
        return DIRECTIVES

    keeper.directives = answer
    handled = handler(stubborn if kind == "thread" else blocking, timeout=0.1)
    end, _ = run(10, handled, changed(parallel=1), keeper)
    assert end.done
    (stuck,) = [checkpoint for checkpoint in keeper.checkpoints if checkpoint.stuck]
    assert stuck.stuck == (3,)
    assert stuck.start == 3, "the items before it are stored as done"


def test_a_sweep_with_slow_items_still_sends_a_checkpoint_every_second() -> None:
    def work(item: Item) -> None:
        time.sleep(0.0 if item.index < 5 else 1.6)

    _, keeper = run(6, handler(work))
    assert 5 in [checkpoint.start for checkpoint in keeper.checkpoints], "while the last item runs"


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_stop_lets_running_items_end_and_starts_no_more(parallel: int) -> None:
    seen = RunItems()
    keeper = Keeper()
    keeper.directives = lambda checkpoint: changed(parallel=parallel, stop=checkpoint.start > 200)
    end, _ = run(10**9, handler(seen.sync), changed(parallel=parallel), keeper)
    assert (end.done, end.reason) == (False, None)
    assert len(seen.items) == end.start, "every item that started is done and stored"
    assert seen.now == 0


def test_parallel_changes_while_the_partition_runs() -> None:
    seen, threads = RunItems(), set()

    def work(item: Item) -> None:
        threads.add(threading.current_thread().name)
        seen.sync(item)

    keeper = Keeper()
    keeper.directives = lambda checkpoint: changed(
        parallel=1 if checkpoint.start < 2_000 else 3, stop=len(threads) == 4
    )
    end, _ = run(10**9, handler(work), DIRECTIVES, keeper)
    assert len(seen.items) == end.start and set(seen.items.values()) == {1}
    assert "MainThread" in threads and seen.most == 3


@pytest.mark.parametrize("kind", ["main thread", "threads", "loop"])
def test_a_stop_signal_ends_the_run_at_once(kind: str) -> None:
    def work(item: Item) -> None:
        if item.index == 3:
            timer.start()
        for _ in range(500):
            time.sleep(0.01)

    async def loops(item: Item) -> None:
        if item.index == 3:
            timer.start()
        await asyncio.sleep(5)

    runs: list[PartitionRun] = []
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, lambda *_: runs[0].stop())
    began = time.monotonic()
    directives = changed(parallel=1 if kind == "main thread" else 4)
    if kind == "main thread":
        timer.start()
    try:
        with pytest.raises(Stopped):
            run(100, handler(loops if kind == "loop" else work), directives, before=runs.append)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began < 3.0


@pytest.mark.parametrize("kind", ["main thread", "threads", "loop"])
def test_an_error_of_the_source_ends_the_run_with_that_error(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed_source(self: ItemWork, block: range) -> None:
        if 100 in block:
            raise Conflict(reason="items: the source has changed")

    async def loops(item: Item) -> None: ...

    monkeypatch.setattr(ItemWork, "texts", changed_source)
    work = loops if kind == "loop" else lambda item: None
    with pytest.raises(Conflict, match="the source has changed"):
        run(10**9, handler(work), changed(parallel=1 if kind == "main thread" else 3))


def test_a_stop_raised_inside_an_async_item_ends_the_run_at_once() -> None:
    runs: list[PartitionRun] = []

    async def work(item: Item) -> None:
        if item.index == 3:
            runs[0].stop()
        await asyncio.sleep(10)

    began = time.monotonic()
    with pytest.raises(Stopped):
        run(100, handler(work), changed(parallel=5), before=runs.append)
    assert time.monotonic() - began < 3


def test_a_run_that_was_lost_stores_nothing_more() -> None:
    keeper = Keeper()
    keeper.directives = lambda checkpoint: None
    with pytest.raises(RunLost):
        run(10**9, handler(lambda item: None), DIRECTIVES, keeper)


def test_the_rate_holds_for_all_threads_together() -> None:
    seen = RunItems()
    keeper = Keeper()
    began = time.monotonic()
    directives = changed(parallel=4, rate=200.0)
    keeper.directives = lambda checkpoint: changed(
        parallel=4, rate=200.0, stop=time.monotonic() - began > 2.0
    )
    run(10**6, handler(seen.sync), directives, keeper)
    spent = time.monotonic() - began
    assert len(seen.items) / spent == pytest.approx(200, rel=0.25)


def test_only_an_item_that_keeps_the_loop_from_running_blocks_it() -> None:
    now = 0.0
    found = []

    class Window:
        def clock(self) -> float:
            return now

    work = ItemWork(cast(ItemWindow, Window()), print, NO_RETRY, timeout=1.0, items=None)
    executor = EventLoopExecutor(work, 1)

    async def item() -> None:
        nonlocal now
        for seconds, answers in ((0.5, False), (0.6, False), (0.0, True), (0.9, False)):
            found.append(executor.blocking_item())
            now += seconds
            if answers:
                await asyncio.sleep(0)
        found.append(executor.blocking_item())

    async def main() -> None:
        executor.loop = asyncio.get_running_loop()
        task = asyncio.create_task(item())
        executor.running[task] = 7
        await task

    asyncio.run(main())
    assert found == [None, None, 7, None, None]
