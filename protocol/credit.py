"""Credit: which tasks a worker holds and which bundles it has confirmed, on both sides.

The sender numbers its bundles and keeps each until the worker confirms it. Every message from the
worker names the last bundle received, and every heartbeat names all tasks it holds. So a lost
bundle is sent again, a doubled one is ignored, and the next heartbeat makes up for a lost
TasksReleased.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class BundleSender(Generic[T]):
    """The dispatcher's side for one worker: the tasks it holds and the unconfirmed bundles."""

    def __init__(self, held: Collection[int] = ()) -> None:
        self.held: set[int] = set(held)
        self._number = 0
        self._confirmed = 0
        self._unconfirmed: dict[int, tuple[float, frozenset[int], T]] = {}

    def next_number(self, task_ids: Collection[int]) -> int:
        """The number of a new bundle. Its tasks count as held from now on."""
        self._number += 1
        self.held.update(task_ids)
        return self._number

    def keep(self, number: int, task_ids: Collection[int], bundle: T, now: float) -> None:
        """Keep a bundle until it is confirmed."""
        self._unconfirmed[number] = (now, frozenset(task_ids), bundle)

    def confirm(self, received: int) -> None:
        """The worker has received every bundle up to this number."""
        self._confirmed = max(self._confirmed, received)
        for number in [n for n in self._unconfirmed if n <= received]:
            del self._unconfirmed[number]

    def remove(self, task_ids: Collection[int]) -> set[int]:
        """Remove tasks that the worker released; returns those that it was known to hold."""
        removed = self.held.intersection(task_ids)
        self.held -= removed
        return removed

    def reconcile(self, received: int, reported: Collection[int]) -> set[int]:
        """Take over the held tasks of a heartbeat; returns the tasks that have left the worker:
        neither reported nor in an unconfirmed bundle."""
        if received < self._confirmed:
            return set()  # older than a message that confirmed a later bundle
        self.confirm(received)
        in_flight: set[int] = set()
        for _, ids, _ in self._unconfirmed.values():
            in_flight |= ids
        removed = self.held - set(reported) - in_flight
        self.held = (self.held & in_flight) | set(reported)
        return removed

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
    """The worker's side: accepts each bundle once."""

    def __init__(self) -> None:
        self.received = 0
        """Every bundle up to this number has been received."""
        self._ahead: set[int] = set()

    def accept(self, number: int) -> bool:
        """Record a bundle; False if it was received before."""
        if number <= self.received or number in self._ahead:
            return False
        self._ahead.add(number)
        while self.received + 1 in self._ahead:
            self.received += 1
            self._ahead.discard(self.received)
        return True
