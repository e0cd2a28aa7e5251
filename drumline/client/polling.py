"""Read the state of something again and again until it has finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from drumline.errors import NotReachable

T = TypeVar("T")

FIRST_INTERVAL, LONGEST_INTERVAL = 0.02, 0.5
UNREACHABLE_SECONDS = 60.0
"""How long the gateway may be unreachable before that is an error."""


def poll(read: Callable[[], T], timeout: float | None = None) -> Iterator[T]:
    """Yield what `read` returns, at growing intervals; ends when the timeout has passed.

    A gateway that restarts meanwhile is waited for.
    """
    began = reached = time.monotonic()
    interval = FIRST_INTERVAL
    while True:
        try:
            state = read()
        except NotReachable:
            if time.monotonic() - reached > UNREACHABLE_SECONDS:
                raise
        else:
            yield state
            reached = time.monotonic()
        left = float("inf") if timeout is None else began + timeout - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(interval, left))
        interval = min(interval * 1.5, LONGEST_INTERVAL)
