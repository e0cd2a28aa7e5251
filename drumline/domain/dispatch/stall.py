"""Stall detection: the queue grows over several checks while no task finishes."""

from __future__ import annotations

import msgspec


class StallState(msgspec.Struct, frozen=True):
    """The state that is kept from check to check."""

    queued: int = 0
    finished: int = 0
    growing: int = 0
    """Checks in a row in which the queue grew and no task finished."""


def observe_scan(
    before: StallState, queued: int, finished: int, limit: int
) -> tuple[StallState, bool]:
    """Add one check. True: the queue has grown in more than `limit` of them in a row."""
    is_stuck = queued > before.queued and finished == before.finished
    growing = before.growing + 1 if is_stuck else 0
    is_stalled = growing > limit
    return StallState(queued, finished, 0 if is_stalled else growing), is_stalled
