"""Who is alive, as a pure function of when each was heard and of a monotonic clock.

The watcher's own pauses are taken into account: if it did not look for a while (it was stopped,
or its machine slept), nobody is judged by the time that it missed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


class SilenceDetector(Generic[Peer]):
    """Remembers when each peer was last heard, and says who has been silent for too long."""

    def __init__(self, limit: float, longest_gap: float) -> None:
        self.limit = limit
        self.longest_gap = longest_gap
        self._heard: dict[Peer, float] = {}
        self._looked: float | None = None

    def heard(self, peer: Peer, now: float) -> None:
        self._heard[peer] = now

    def forget(self, peer: Peer) -> None:
        self._heard.pop(peer, None)

    def excuse(self, now: float) -> None:
        """Start everyone's time again: the watcher could not have heard them."""
        self._heard = dict.fromkeys(self._heard, now)

    def silence(self, peer: Peer, now: float) -> float:
        """Seconds since a peer was heard; unknown peers have been silent for ever."""
        heard = self._heard.get(peer)
        return float("inf") if heard is None else now - heard

    def look(self, now: float) -> list[Peer]:
        """Those who have been silent for longer than the limit."""
        if self._looked is not None and now - self._looked > self.longest_gap:
            self.excuse(now)
        self._looked = now
        return [peer for peer, heard in self._heard.items() if now - heard > self.limit]
