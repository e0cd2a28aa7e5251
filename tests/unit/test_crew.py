"""Crews: alone, in threads, in a loop; each with a pulse beside it and a keeper in this process."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

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
from drumline.runner.sweep.item_executor import ItemWork
from drumline.runner.sweep.partition_monitor import KeeperPipe
from drumline.runner.sweep.partition_run import PartitionRun
from drumline.task import Task

LIVE = PartitionDirectives(
    stop=False, rate=None, parallel=1, serial=True, budget=None, errors_at_start=0, other_errors=0
)
NO_RETRY = Retry()


def changed(**values: Any) -> PartitionDirectives:
    return PartitionDirectives(
        **{name: getattr(LIVE, name) for name in LIVE.__struct_fields__} | values
    )


class Keeper:
    """Stores every checkpoint, and answers with what is live."""

    def __init__(self, live: PartitionDirectives = LIVE) -> None:
        ours, theirs = socket.socketpair()
        self.here = Channel(ours, ToKeeper)
        self.task_id = 0
        self.there = Channel(theirs, ToRunner)
        self.live: Callable[[Checkpoint], PartitionDirectives | None] = lambda flush: live
        self.flushes: list[Checkpoint] = []
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
                    self.task_id, checkpoint = frame.task_id, frame.checkpoint
                    self.flushes.append(checkpoint)
                    answer = self.live(checkpoint)
                    ours = answer is not None
                    reply: Frame = CheckpointStored(frame.task_id, checkpoint.start, ours, answer)
                    if not checkpoint.stuck:
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
    live: PartitionDirectives = LIVE,
    keeper: Keeper | None = None,
    before: Callable[[PartitionRun], None] = lambda part: None,
) -> tuple[PartitionResult, Keeper]:
    keeper = keeper or Keeper(live)
    facts = PartitionInfo(1, "s", 0, total, 0, 0, (), None, None, live)
    try:
        part = PartitionRun(TASK, handled, facts, keeper.pipe)
        before(part)
        return part.run(), keeper
    finally:
        keeper.close()


class Seen:
    """Which items ran, how often, and how many at most at a time."""

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
        """The first ones wait until four run at a time."""
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
def test_every_item_runs_once_and_so_many_at_a_time(kind: str, parallel: int, total: int) -> None:
    seen = Seen()
    end, keeper = run(total, handler(getattr(seen, kind)), changed(parallel=parallel))
    assert end == PartitionResult(total, 0, True)
    assert len(seen.items) == total and set(seen.items.values()) == {1}
    assert seen.most == parallel
    starts = [flush.start for flush in keeper.flushes]
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
    assert sum((flush.failed for flush in keeper.flushes), ()) == (5,)
    (line,) = [line for flush in keeper.flushes for line in flush.log]
    assert (line.item, line.message) == (5, "failed: SystemExit: item 5")


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_sync_item_is_struck_at_its_timeout(parallel: int) -> None:
    """Whether or not it would swallow an Exception; and only it."""

    def work(item: Item) -> None:
        if item.index == 4:
            while True:
                with suppress(Exception):
                    time.sleep(0.01)

    began = time.monotonic()
    end, keeper = run(12, handler(work, timeout=0.2), changed(parallel=parallel))
    assert end == PartitionResult(12, 1, True)
    assert 0.2 < time.monotonic() - began < 2.0
    (line,) = [line for flush in keeper.flushes for line in flush.log]
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


def test_items_that_end_just_at_their_timeout_break_nothing() -> None:
    """The exception may come between two items, or into the next one."""
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
def test_an_item_that_cannot_be_stopped_is_told_of(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper kills the runner then; here the item gives up by itself at last."""
    monkeypatch.setattr(partition_monitor, "GRACE", 0.1)
    keeper = Keeper()
    told = threading.Event()

    def work(item: Item) -> None:
        while item.index == 3 and not told.wait(0.01):
            pass

    def stubborn(item: Item) -> None:
        while not told.is_set():
            with suppress(BaseException):
                work(item)
                return

    async def blocking(item: Item) -> None:
        work(item)

    def live(flush: Checkpoint) -> PartitionDirectives:
        if flush.stuck:
            told.set()
            keeper.here.send(CheckpointStored(keeper.task_id, flush.start, True, LIVE))
        return LIVE

    keeper.live = live
    handled = handler(stubborn if kind == "thread" else blocking, timeout=0.1)
    end, _ = run(10, handled, changed(parallel=1), keeper)
    assert end.done
    (stuck,) = [flush for flush in keeper.flushes if flush.stuck]
    assert stuck.stuck == (3,)
    assert stuck.start == 3, "what is over before it is stored with it"


def test_a_sweep_with_slow_items_still_says_every_second_how_far_it_is() -> None:
    def work(item: Item) -> None:
        time.sleep(0.0 if item.index < 5 else 1.6)

    _, keeper = run(6, handler(work))
    assert 5 in [flush.start for flush in keeper.flushes], "while the last item runs"


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_stop_lets_items_end_and_starts_none(parallel: int) -> None:
    seen = Seen()
    keeper = Keeper()
    keeper.live = lambda flush: changed(parallel=parallel, stop=flush.start > 200)
    end, _ = run(10**9, handler(seen.sync), changed(parallel=parallel), keeper)
    assert (end.done, end.reason) == (False, None)
    assert len(seen.items) == end.start, "what was begun is done, and stored"
    assert seen.now == 0


def test_the_number_at_a_time_changes_while_it_runs() -> None:
    seen, threads = Seen(), set()

    def work(item: Item) -> None:
        threads.add(threading.current_thread().name)
        seen.sync(item)

    keeper = Keeper()
    keeper.live = lambda flush: changed(
        parallel=1 if flush.start < 2_000 else 3, stop=len(threads) == 4
    )
    end, _ = run(10**9, handler(work), LIVE, keeper)
    assert len(seen.items) == end.start and set(seen.items.values()) == {1}
    assert "MainThread" in threads and seen.most == 3


@pytest.mark.parametrize("kind", ["alone", "threads", "loop"])
def test_an_ask_ends_it_at_once(kind: str) -> None:
    def work(item: Item) -> None:
        if item.index == 3:
            timer.start()
        for _ in range(500):
            time.sleep(0.01)

    async def loops(item: Item) -> None:
        if item.index == 3:
            timer.start()
        await asyncio.sleep(5)

    parts: list[PartitionRun] = []
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, lambda *_: parts[0].stop())
    began = time.monotonic()
    live = changed(parallel=1 if kind == "alone" else 4)
    if kind == "alone":
        timer.start()
    try:
        with pytest.raises(Stopped):
            run(100, handler(loops if kind == "loop" else work), live, before=parts.append)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began < 3.0


@pytest.mark.parametrize("kind", ["alone", "threads", "loop"])
def test_a_source_that_fails_ends_it_with_that_error(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed_source(self: ItemWork, block: range) -> None:
        if 100 in block:
            raise Conflict(reason="items: the source has changed")

    async def loops(item: Item) -> None: ...

    monkeypatch.setattr(ItemWork, "texts", changed_source)
    work = loops if kind == "loop" else lambda item: None
    with pytest.raises(Conflict, match="the source has changed"):
        run(10**9, handler(work), changed(parallel=1 if kind == "alone" else 3))


def test_an_ask_that_strikes_into_an_async_item_ends_it_at_once() -> None:
    parts: list[PartitionRun] = []

    async def work(item: Item) -> None:
        if item.index == 3:
            parts[0].stop()
        await asyncio.sleep(10)

    began = time.monotonic()
    with pytest.raises(Stopped):
        run(100, handler(work), changed(parallel=5), before=parts.append)
    assert time.monotonic() - began < 3


def test_who_has_lost_it_stores_nothing_more() -> None:
    keeper = Keeper()
    keeper.live = lambda flush: None
    with pytest.raises(RunLost):
        run(10**9, handler(lambda item: None), LIVE, keeper)


def test_a_rate_is_kept_by_all_members_together() -> None:
    seen = Seen()
    keeper = Keeper()
    began = time.monotonic()
    live = changed(parallel=4, rate=200.0)
    keeper.live = lambda flush: changed(parallel=4, rate=200.0, stop=time.monotonic() - began > 2.0)
    run(10**6, handler(seen.sync), live, keeper)
    spent = time.monotonic() - began
    assert len(seen.items) / spent == pytest.approx(200, rel=0.25)
