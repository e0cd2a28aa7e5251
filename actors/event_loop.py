"""The event loop that all processes share: sockets, timers, signals, and words from threads."""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
import zmq

from drumline.errors import StoreUnavailable

log = structlog.get_logger()

Callback = Callable[[], object]


class Timer:
    """A call that is due at a time; cancel() takes it back."""

    __slots__ = ("at", "callback", "cancelled", "every")

    def __init__(self, at: float, callback: Callback, every: float | None) -> None:
        self.at = at
        self.callback = callback
        self.every = every
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class EventLoop:
    """One thread that waits for everything at once. Times are monotonic."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._readers: dict[Any, Callback] = {}
        self._writers: dict[Any, Callback] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._posted: deque[Callback] = deque()
        self._running = True
        self._signals: dict[int, Callback] = {}
        self._seen: deque[int] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self.add_reader(self._wake_out.fileno(), self._woken)

    @staticmethod
    def now() -> float:
        return time.monotonic()

    def add_reader(self, source: Any, callback: Callback) -> None:
        """Call back whenever a socket or file descriptor has something to read."""
        self._readers[source] = callback
        self._register(source)

    def remove_reader(self, source: Any) -> None:
        self._readers.pop(source, None)
        self._register(source)

    def add_writer(self, source: Any, callback: Callback) -> None:
        """Call back whenever something can be written."""
        self._writers[source] = callback
        self._register(source)

    def remove_writer(self, source: Any) -> None:
        self._writers.pop(source, None)
        self._register(source)

    def _register(self, source: Any) -> None:
        flags = (zmq.POLLIN if source in self._readers else 0) | (
            zmq.POLLOUT if source in self._writers else 0
        )
        if flags:
            self._poller.register(source, flags)
        elif source in self._poller:
            self._poller.unregister(source)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        return self._schedule(Timer(self.now() + seconds, callback, None))

    def call_every(self, seconds: float, callback: Callback) -> Timer:
        return self._schedule(Timer(self.now() + seconds, callback, seconds))

    def post(self, callback: Callback) -> None:
        """From any thread: have the loop call this soon."""
        self._posted.append(callback)
        self._wake()

    def on_signal(self, number: int, callback: Callback) -> None:
        """The signal handler only notes the signal; the callback runs in the loop."""
        self._signals[number] = callback
        # Without the wake-up descriptor a poll that has begun sleeps on after the signal.
        signal.set_wakeup_fd(self._wake_in.fileno(), warn_on_full_buffer=False)
        signal.signal(number, lambda got, _: self._seen.append(got))

    def stop(self) -> None:
        self._running = False
        self._wake()

    def close(self) -> None:
        """After the run: give back what the loop itself holds."""
        self._wake_in.close()
        self._wake_out.close()

    def run(self) -> None:
        while self._running:
            for source, flags in self._poller.poll(self._patience()):
                # Looked up one by one: a callback may have removed the next.
                if flags & ~zmq.POLLOUT and (callback := self._readers.get(source)):
                    self._guarded(callback)
                if flags & zmq.POLLOUT and (callback := self._writers.get(source)):
                    self._guarded(callback)
            while self._seen:
                self._guarded(self._signals[self._seen.popleft()])
            while self._posted:
                self._guarded(self._posted.popleft())
            self._fire_timers()

    def _schedule(self, timer: Timer) -> Timer:
        heapq.heappush(self._timers, (timer.at, next(self._order), timer))
        return timer

    def _patience(self) -> int | None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if self._posted or self._seen:
            return 0
        if not self._timers:
            return None
        # Rounded up: a poll that ends just before its timer would spin.
        return max(0, int((self._timers[0][0] - self.now()) * 1000) + 1)

    def _fire_timers(self) -> None:
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.cancelled:
                continue
            if timer.every is not None:
                timer.at = now + timer.every
                self._schedule(timer)
            self._guarded(timer.callback)

    def _guarded(self, callback: Callback) -> None:
        """A database that is away is a reason to try again later, not to die."""
        try:
            callback()
        except StoreUnavailable as error:
            log.warning("The database is away; this is tried again.", action="store_unavailable",
                        error=str(error))  # fmt: skip

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # it may be full of wake-ups already
            self._wake_in.send(b"\0")

    def _woken(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake_out.fileno(), 4096):
                pass
