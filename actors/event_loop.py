"""The event loop of every process: sockets, timers, signals, and calls posted by threads."""

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
    """A scheduled call; `cancel` prevents it."""

    __slots__ = ("at", "callback", "cancelled", "every")

    def __init__(self, at: float, callback: Callback, every: float | None) -> None:
        self.at = at
        self.callback = callback
        self.every = every
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class EventLoop:
    """A single-threaded loop over one poller. Times are monotonic."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._readers: dict[Any, Callback] = {}
        self._writers: dict[Any, Callback] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._posted: deque[Callback] = deque()
        self._running = True
        self._signals: dict[int, Callback] = {}
        self._pending_signals: deque[int] = deque()
        self._wakeup_in, self._wakeup_out = socket.socketpair()
        self._wakeup_in.setblocking(False)
        self._wakeup_out.setblocking(False)
        self.add_reader(self._wakeup_out.fileno(), self._drain_wakeups)

    @staticmethod
    def now() -> float:
        return time.monotonic()

    def add_reader(self, source: Any, callback: Callback) -> None:
        """Call back whenever a socket or file descriptor is readable."""
        self._readers[source] = callback
        self._update_poller(source)

    def remove_reader(self, source: Any) -> None:
        self._readers.pop(source, None)
        self._update_poller(source)

    def add_writer(self, source: Any, callback: Callback) -> None:
        """Call back whenever a socket or file descriptor is writable."""
        self._writers[source] = callback
        self._update_poller(source)

    def remove_writer(self, source: Any) -> None:
        self._writers.pop(source, None)
        self._update_poller(source)

    def _update_poller(self, source: Any) -> None:
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
        """Have the loop call this soon. Callable from any thread."""
        self._posted.append(callback)
        self._wake_up()

    def on_signal(self, number: int, callback: Callback) -> None:
        """Call back in the loop after a signal; the signal handler itself only records it."""
        self._signals[number] = callback
        # Without the wake-up descriptor a poll in progress does not end at the signal.
        signal.set_wakeup_fd(self._wakeup_in.fileno(), warn_on_full_buffer=False)
        signal.signal(number, lambda number, _: self._pending_signals.append(number))

    def stop(self) -> None:
        self._running = False
        self._wake_up()

    def close(self) -> None:
        """Close the loop's own sockets, after `run` has returned."""
        self._wakeup_in.close()
        self._wakeup_out.close()

    def run(self) -> None:
        while self._running:
            for source, flags in self._poller.poll(self._poll_timeout()):
                # Looked up one by one: an earlier callback may have removed a later one.
                if flags & ~zmq.POLLOUT and (callback := self._readers.get(source)):
                    self._call(callback)
                if flags & zmq.POLLOUT and (callback := self._writers.get(source)):
                    self._call(callback)
            while self._pending_signals:
                self._call(self._signals[self._pending_signals.popleft()])
            while self._posted:
                self._call(self._posted.popleft())
            self._fire_timers()

    def _schedule(self, timer: Timer) -> Timer:
        heapq.heappush(self._timers, (timer.at, next(self._order), timer))
        return timer

    def _poll_timeout(self) -> int | None:
        """Milliseconds until the next timer; None without timers."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if self._posted or self._pending_signals:
            return 0
        if not self._timers:
            return None
        # Rounded up: a poll that ends just before its timer would busy-wait.
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
            self._call(timer.callback)

    def _call(self, callback: Callback) -> None:
        """Run a callback. An unavailable database does not end the process: the work that was
        interrupted comes again with its timer or message."""
        try:
            callback()
        except StoreUnavailable as error:
            log.warning("Database unavailable; will retry", action="store_unavailable",
                        error=str(error))  # fmt: skip

    def _wake_up(self) -> None:
        with suppress(BlockingIOError):  # a wake-up is pending already
            self._wakeup_in.send(b"\0")

    def _drain_wakeups(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wakeup_out.fileno(), 4096):
                pass
