"""The rate limit of a sweep, its measured speed, and the window size for them."""

from __future__ import annotations

import math

BURST_SECONDS = 0.1
"""How late a caller may be without losing tokens."""
SPEED_SPAN = 5.0
"""Seconds over which the speed is averaged."""
WINDOW_SECONDS = 10
"""A window holds the items of this period."""
LARGEST_WINDOW = 1_000_000
"""Without a rate. Each item takes a byte, and may run again after a crash."""
SMALLEST_WINDOW = 16
"""Without a rate, before a speed is measured."""

# Seconds. A caller that sleeps for exactly seconds_until() must be granted the token afterwards, or
# it would spin: the clock of a host that has been up for 100 days has a resolution of 2 ns.
_ROUNDING = 1e-8


class TokenBucket:
    """Grants `rate` tokens per second; without a rate, as many as are requested.

    The bucket holds one token and those of a tenth of a second. The tenth of a second is needed
    because callers wake up late: at 5 tokens per second and 5 ms of lateness, a bucket of one token
    would lose 2.5 %. It is small, so that 500 per second stay smooth and a sweep that was delayed
    does not catch up in one burst.
    """

    __slots__ = ("_at", "_depth", "_rate", "_slack", "_tokens")

    def __init__(self, rate: float | None, now: float) -> None:
        self._tokens = 1.0
        self._at = now
        self._set(rate)

    @property
    def rate(self) -> float | None:
        return self._rate

    def take(self, now: float, wanted: int) -> int:
        """Take up to `wanted` tokens; the number of those granted."""
        if self._rate is None or wanted <= 0:
            return max(0, wanted)
        self._fill(now)
        granted = min(wanted, int(self._tokens + self._slack))
        self._tokens -= granted
        return granted

    def seconds_until(self, now: float, wanted: int = 1) -> float:
        """Seconds until that many tokens are available, or a full bucket if it holds fewer."""
        if self._rate is None:
            return 0.0
        self._fill(now)
        missing = min(wanted, int(self._depth)) - self._tokens
        return missing / self._rate if missing > self._slack else 0.0

    def set_rate(self, rate: float | None, now: float) -> None:
        """Change the rate. Tokens that were earned stay, up to the new depth."""
        self._fill(now)
        self._set(rate)

    def _set(self, rate: float | None) -> None:
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError(f"a rate must be above zero and finite, not {rate}")
        self._rate = rate
        self._depth = 1.0 + (rate or 0.0) * BURST_SECONDS
        self._slack = 1e-9 + (rate or 0.0) * _ROUNDING
        self._tokens = min(self._tokens, self._depth)

    def _fill(self, now: float) -> None:
        if now <= self._at:
            return
        if self._rate is not None:
            self._tokens = min(self._depth, self._tokens + (now - self._at) * self._rate)
        self._at = now


class Speed:
    """Measured items per second: the mean since the start, or of about the last five seconds."""

    __slots__ = ("_at", "_done", "_since", "_span", "_speed")

    def __init__(self, now: float, done: int = 0, *, span: float = SPEED_SPAN) -> None:
        self._since = self._at = now
        self._done = done
        self._span = span
        self._speed = 0.0

    @property
    def per_second(self) -> float:
        return self._speed

    def measure(self, now: float, done: int) -> float:
        """Add a measurement: `done` items in total at the time `now`."""
        passed = now - self._at
        if passed > 0:
            sample = (done - self._done) / passed
            weight = min(1.0, passed / min(self._span, now - self._since))
            self._speed += (sample - self._speed) * weight
            self._at = now
            self._done = done
        return self._speed


def window_size(rate: float | None, speed: float, parallel: int) -> int:
    """How many items a window holds: those of ten seconds.

    Without a rate the size follows the measured speed, but is at least twice the number of
    concurrent items. Otherwise items that take longer than ten seconds would shrink the window,
    which would slow the sweep down, which would shrink the window again.
    """
    if rate is not None:
        return max(1, math.ceil(rate * WINDOW_SECONDS))
    floor = max(SMALLEST_WINDOW, 2 * parallel)
    return max(floor, min(LARGEST_WINDOW, math.ceil(speed * WINDOW_SECONDS)))
