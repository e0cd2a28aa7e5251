"""Whoever said hello to the dispatcher, and what is known of him."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from protocol.credit import BundleSender
from protocol.messages import Bundle, Register


@dataclass
class Peer:
    """Someone who said hello."""

    hello: Register
    free_since: float
    outbox: BundleSender[Bundle] = field(default_factory=BundleSender)
    asynchronous: frozenset[str] = frozenset()
    synchronous: frozenset[str] = frozenset()
    sweeps: frozenset[str] = frozenset()
    """Those of the synchronous ones that take a worker for as long as they run."""
    kill_at: dict[tuple[int, int], float] = field(default_factory=dict)
    draining: bool = False

    def describe(self) -> dict[str, Any]:
        """A worker as operators see it."""
        return {
            "name": self.hello.name,
            "pid": self.hello.pid,
            "keeper": self.hello.incarnation,
            "state": "draining" if self.draining else "busy" if self.outbox.held else "free",
            "tasks": sorted(self.outbox.held)[:20],
            "holds": len(self.outbox.held),
        }
