"""Detects silent peers: a pure function of the times of their messages on a monotonic clock.

The watcher's own pauses do not count: if it did not check for a while (it was stopped, or the
machine slept), the time of every peer starts again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


class SilenceDetector(Generic[Peer]):
    """Records the last message of each peer, and says which peers exceed the silence limit."""

    def __init__(self, limit: float, longest_gap: float) -> None:
        self.limit = limit
        self.longest_gap = longest_gap
        """A longer time between two checks means that the watcher itself was paused."""
        self._last_message: dict[Peer, float] = {}
        self._last_check: float | None = None

    def record_message(self, peer: Peer, now: float) -> None:
        self._last_message[peer] = now

    def forget(self, peer: Peer) -> None:
        self._last_message.pop(peer, None)

    def restart(self, now: float) -> None:
        """Start the time of all peers again: the watcher could not have received messages."""
        self._last_message = dict.fromkeys(self._last_message, now)

    def silent_peers(self, now: float) -> list[Peer]:
        """Peers that have been silent for longer than the limit."""
        if self._last_check is not None and now - self._last_check > self.longest_gap:
            self.restart(now)
        self._last_check = now
        return [peer for peer, at in self._last_message.items() if now - at > self.limit]
