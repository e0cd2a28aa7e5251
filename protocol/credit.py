"""Credit: what a worker may be sent, from the absolute state that it reports.

The sender numbers its bundles and keeps each until the worker says that it came. The worker says
in every message the last number it received and, with each beat, all that it holds. So a lost
bundle is sent again, a doubled one is ignored, and a lost Done is made good by the next beat.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class BundleSender(Generic[T]):
    """The dispatcher's half for one worker: which tasks it has, and what it has not confirmed."""

    def __init__(self, held: Collection[int] = ()) -> None:
        self.held: set[int] = set(held)
        self._number = 0
        self._confirmed = 0
        self._unconfirmed: dict[int, tuple[float, frozenset[int], T]] = {}

    def send(self, task_ids: Collection[int], now: float) -> int:
        """The number for a new bundle of these tasks."""
        self._number += 1
        self.held.update(task_ids)
        return self._number

    def keep(self, number: int, task_ids: Collection[int], bundle: T, now: float) -> None:
        """Keep a bundle until it is confirmed."""
        self._unconfirmed[number] = (now, frozenset(task_ids), bundle)

    def confirm(self, received: int) -> None:
        self._confirmed = max(self._confirmed, received)
        for number in [n for n in self._unconfirmed if n <= received]:
            del self._unconfirmed[number]

    def done(self, task_ids: Collection[int]) -> set[int]:
        """Tasks that left the worker; those that it was known to have."""
        gone = self.held.intersection(task_ids)
        self.held -= gone
        return gone

    def reconcile(self, received: int, reported: Collection[int]) -> set[int]:
        """Believe the worker: what it neither holds nor may still be on its way to it has left."""
        if received < self._confirmed:
            return set()  # from before a bundle of which it has told us since
        self.confirm(received)
        on_the_way: set[int] = set()
        for _, ids, _ in self._unconfirmed.values():
            on_the_way |= ids
        gone = self.held - set(reported) - on_the_way
        self.held = (self.held & on_the_way) | set(reported)
        return gone

    def overdue(self, now: float, after: float) -> list[T]:
        """Bundles to send again, each with its old number."""
        late = [n for n, (sent, _, _) in self._unconfirmed.items() if now - sent > after]
        bundles = []
        for number in late:
            _, ids, bundle = self._unconfirmed[number]
            self._unconfirmed[number] = (now, ids, bundle)
            bundles.append(bundle)
        return bundles


class BundleReceiver:
    """The worker's half: each bundle once, whatever is repeated."""

    def __init__(self) -> None:
        self.received = 0
        self._ahead: set[int] = set()

    def accept(self, number: int) -> bool:
        """Is this bundle new?"""
        if number <= self.received or number in self._ahead:
            return False
        self._ahead.add(number)
        while self.received + 1 in self._ahead:
            self.received += 1
            self._ahead.discard(self.received)
        return True
