"""Stall detection: the queue grows, scan after scan, and nothing comes to an end."""

from __future__ import annotations

import msgspec


class StallState(msgspec.Struct, frozen=True):
    """What is remembered from scan to scan."""

    queued: int = 0
    finished: int = 0
    growing: int = 0


def observe_scan(
    before: StallState, queued: int, finished: int, limit: int
) -> tuple[StallState, bool]:
    """Look at one timed scan. True: it has grown over more than `limit` of them in a row."""
    stuck = queued > before.queued and finished == before.finished
    growing = before.growing + 1 if stuck else 0
    stalled = growing > limit
    return StallState(queued, finished, 0 if stalled else growing), stalled
