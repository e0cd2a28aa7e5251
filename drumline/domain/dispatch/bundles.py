"""How large a bundle may be: as much work as fits into a few milliseconds.

A handler that was never seen gets bundles of one. Its bundles grow as its running mean becomes
known, and shrink to one as soon as it turns out slow, so that nobody waits behind a slow task.
"""

from __future__ import annotations

import math

GROWTH = 8
"""A bundle has at most this many times as many tasks as runs have been measured, plus one."""
WEIGHT = 0.2


class RuntimeEstimates:
    """The running mean of each handler's seconds, and what follows from it."""

    def __init__(self, budget: float, most: int) -> None:
        self.budget = budget
        self.most = most
        self._means: dict[str, tuple[float, int]] = {}

    def observe(self, key: str, runs: int, seconds: float) -> None:
        """Learn from some runs. What got slower is believed at once, what got faster slowly."""
        if runs <= 0 or not 0 <= seconds < math.inf:
            return  # a number that no clock gave
        latest = seconds / runs
        mean, seen = self._means.get(key, (latest, 0))
        mean = latest if latest > mean else mean + (latest - mean) * WEIGHT
        self._means[key] = (mean, min(seen + runs, 1_000_000))

    def seconds(self, key: str) -> float:
        """What one run is expected to take; a handler never seen may take for ever."""
        return self._means[key][0] if key in self._means else float("inf")

    def size(self, key: str) -> int:
        """How many tasks of this handler make a bundle."""
        if key not in self._means:
            return 1
        mean, seen = self._means[key]
        fitting = self.most if mean * self.most <= self.budget else int(self.budget / mean)
        return max(1, min(fitting, 1 + GROWTH * seen))

    def is_quick(self, key: str) -> bool:
        """May another bundle wait behind one of these?"""
        return self.seconds(key) < self.budget
