"""How fast a sweep may go, how fast it goes, and how large its window is for that."""

from __future__ import annotations

import math

BURST_SECONDS = 0.1  # seconds: the lateness of its caller that a bucket makes up for
SPEED_SPAN = 5.0  # seconds over which a speed is averaged
WINDOW_SECONDS = 10  # a window holds what is done in this time
LARGEST_WINDOW = 1_000_000  # without a rate: a byte each, and as much work to repeat after a crash
SMALLEST_WINDOW = 16  # without a rate, before a speed is known

# Seconds. Who sleeps for exactly `wait` must then be granted the token, or would spin: on a host
# that has been up for 100 days, a float of its clock is coarse by 2 ns.
_ROUNDING = 1e-8


class TokenBucket:
    """Grants `rate` tokens a second; without a rate, all that is asked for.

    It holds one token and what a tenth of a second brings, no more. The one token is the one that
    is waited for: a bucket that could hold nothing beside it would lose a little whenever the
    caller wakes up late (at 5/s and 5 ms late, 2.5 %). The rest is small, so that 500/s stays
    smooth and a sweep that was held up does not make up for it in one blow.
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
        """How many of the wanted items may start now."""
        if self._rate is None or wanted <= 0:
            return max(0, wanted)
        self._fill(now)
        granted = min(wanted, int(self._tokens + self._slack))
        self._tokens -= granted
        return granted

    def seconds_until(self, now: float, wanted: int = 1) -> float:
        """Seconds until that many tokens are there, or as many as the bucket holds."""
        if self._rate is None:
            return 0.0
        self._fill(now)
        missing = min(wanted, int(self._depth)) - self._tokens
        return missing / self._rate if missing > self._slack else 0.0

    def set_rate(self, rate: float | None, now: float) -> None:
        """From now on this rate: what the old one has brought stays, as far as there is room."""
        self._fill(now)
        self._set(rate)

    def _set(self, rate: float | None) -> None:
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError(f"a rate is above zero and finite, not {rate}")
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
    """Items a second, measured: the mean since the start, later of about the last five seconds."""

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
        """So many are done by now, in all."""
        passed = now - self._at
        if passed > 0:
            sample = (done - self._done) / passed
            weight = min(1.0, passed / min(self._span, now - self._since))
            self._speed += (sample - self._speed) * weight
            self._at = now
            self._done = done
        return self._speed


def window_size(rate: float | None, speed: float, parallel: int) -> int:
    """How many items a window holds: ten seconds' worth.

    Without a rate it follows the measured speed, and is never smaller than two rounds of what may
    run in parallel: items that take longer than ten seconds would shrink the window, the window
    would slow the sweep down, and that would shrink the window again.
    """
    if rate is not None:
        return max(1, math.ceil(rate * WINDOW_SECONDS))
    floor = max(SMALLEST_WINDOW, 2 * parallel)
    return max(floor, min(LARGEST_WINDOW, math.ceil(speed * WINDOW_SECONDS)))
