"""Rate limits, measured speeds and window sizes over simulated time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.domain.sweeps.rate import (
    BURST_SECONDS,
    LARGEST_WINDOW,
    SMALLEST_WINDOW,
    Speed,
    TokenBucket,
    window_size,
)

RATES = st.floats(0.5, 50_000)


def run(
    bucket: TokenBucket, start: float, seconds: float, rng: random.Random, late: float = 0.0
) -> list[tuple[float, int]]:
    """A caller that takes every token, sleeps for the announced time, and wakes up late."""
    now, grants = start, []
    while now < start + seconds:
        granted = bucket.take(now, 1_000_000)
        if granted:
            grants.append((now, granted))
        now += max(bucket.seconds_until(now), 0.001) + rng.uniform(0, late)
    return grants


@pytest.mark.parametrize("rate", [0.5, 1, 3, 5, 49.9, 500, 20_000, 1_000_000])
@pytest.mark.parametrize("late", [0.0, 0.05])
def test_a_minute_is_exact_within_two_percent(rate: float, late: float) -> None:
    grants = run(TokenBucket(rate, 1_000.0), 1_000.0, 60.0, random.Random(1), late)
    done = sum(granted for _, granted in grants)
    assert abs(done - rate * 60) <= max(1, rate * 60 * 0.02)


@given(rate=RATES, rng=st.randoms(use_true_random=False))
def test_no_period_exceeds_the_rate_by_more_than_one_burst(rate: float, rng: random.Random) -> None:
    bucket = TokenBucket(rate, 0.0)
    now, grants = 0.0, []
    for _ in range(60):
        now += rng.choice([0.0, 0.001, 0.05, 0.3, 10.0])
        grants.append((now, bucket.take(now, rng.choice([1, 10, 10**9]))))
    for i, (begin, _) in enumerate(grants):
        total = 0
        for end, granted in grants[i:]:
            total += granted
            assert total <= rate * (end - begin) + rate * BURST_SECONDS + 1.001


def test_500_a_second_is_smooth() -> None:
    grants = run(TokenBucket(500, 0.0), 0.0, 10.0, random.Random(2), late=0.004)
    by_tenth = [0] * 100
    for now, granted in grants:
        by_tenth[min(99, int(now * 10))] += granted
    assert max(granted for _, granted in grants) <= 5
    assert min(by_tenth) >= 45
    assert max(by_tenth) <= 55


def test_a_delayed_sweep_does_not_catch_up_in_one_burst() -> None:
    bucket = TokenBucket(500, 0.0)
    assert bucket.take(60.0, 10**9) == 51


@given(rate=st.floats(0.01, 1e6), wanted=st.integers(1, 100), now=st.floats(0, 1e7))
def test_tokens_are_granted_after_the_announced_wait_and_not_much_earlier(
    rate: float, wanted: int, now: float
) -> None:
    """Also on a host that has been up for 100 days, whose clock has a low resolution."""
    reachable = min(wanted, int(1 + rate * BURST_SECONDS))
    early, punctual = TokenBucket(rate, now), TokenBucket(rate, now)
    for bucket in (early, punctual):
        assert bucket.take(now, wanted) == 1
    wait = punctual.seconds_until(now, wanted)
    assert wait == pytest.approx(reachable / rate, rel=1e-6)
    assert early.take(now + wait * 0.9, wanted) < reachable
    assert punctual.take(now + wait, wanted) == reachable
    assert punctual.seconds_until(now + wait) > 0


def test_a_new_rate_applies_immediately() -> None:
    rng = random.Random(3)
    bucket = TokenBucket(500, 0.0)
    run(bucket, 0.0, 5.0, rng)
    bucket.set_rate(50, 5.0)
    after = sum(granted for _, granted in run(bucket, 5.0, 2.0, rng))
    assert 98 <= after <= 106
    bucket.set_rate(5_000, 7.0)
    assert 9_900 <= sum(granted for _, granted in run(bucket, 7.0, 2.0, rng)) <= 10_100


def test_a_change_to_a_lower_rate_leaves_no_burst_of_the_higher() -> None:
    bucket = TokenBucket(500, 0.0)
    bucket.set_rate(50, 10.0)
    assert bucket.take(10.0, 1_000) == 6


def test_a_new_rate_keeps_earned_tokens() -> None:
    bucket = TokenBucket(2, 0.0)
    bucket.take(0.0, 1)
    bucket.set_rate(0.1, 0.25)  # half a token is earned; the other half follows at the new rate
    assert bucket.seconds_until(0.25) == pytest.approx(5.0)


def test_without_a_rate_every_request_is_granted() -> None:
    bucket = TokenBucket(None, 0.0)
    assert bucket.take(0.0, 123_456) == 123_456
    assert bucket.seconds_until(0.0) == 0.0
    bucket.set_rate(10, 100.0)
    assert bucket.take(100.0, 100) <= 2
    bucket.set_rate(None, 100.0)
    assert bucket.take(100.0, 100) == 100


def test_a_clock_that_stops_or_goes_back_earns_no_tokens() -> None:
    bucket = TokenBucket(10, 100.0)
    assert bucket.take(100.0, 5) == 1
    assert bucket.take(100.0, 5) == 0
    assert bucket.take(50.0, 5) == 0
    assert bucket.take(100.1, 5) == 1


@pytest.mark.parametrize("wanted", [0, -1])
@pytest.mark.parametrize("rate", [None, 10.0])
def test_a_request_for_nothing_is_granted_nothing(rate: float | None, wanted: int) -> None:
    bucket = TokenBucket(rate, 0.0)
    assert bucket.take(0.0, wanted) == 0
    assert bucket.take(0.0, 1) == 1


@pytest.mark.parametrize("rate", [0, -1.0, float("nan"), float("inf")])
def test_an_invalid_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(rate, 0.0)
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(1, 0.0).set_rate(rate, 1.0)


@given(speed=st.floats(0.1, 1e6), steps=st.lists(st.floats(0.001, 3), min_size=5, max_size=50))
def test_a_steady_speed_is_measured_whatever_the_steps(speed: float, steps: list[float]) -> None:
    now, measured = 10.0, Speed(10.0, 1_000)
    for step in steps:
        now += step
        measured.measure(now, 1_000 + round(speed * (now - 10.0)))
    passed = now - 10.0
    assert measured.per_second == pytest.approx(speed, rel=0.01, abs=2 / min(passed, *steps))


def test_speed_starts_as_the_mean_and_then_follows_changes() -> None:
    speed = Speed(0.0)
    assert speed.per_second == 0.0
    assert speed.measure(0.5, 100) == 200
    assert speed.measure(1.0, 300) == 300  # the mean of the first second
    assert speed.measure(1.0, 300) == 300  # no time has passed
    done = 300
    for second in range(2, 40):
        done += 1_000
        speed.measure(float(second), done)
    assert speed.per_second == pytest.approx(1_000, rel=0.01)
    for second in range(40, 80):
        speed.measure(float(second), done)
    assert 0 <= speed.per_second < 1


def test_a_window_holds_ten_seconds() -> None:
    assert window_size(500, speed=9_999, parallel=64) == 5_000
    assert window_size(0.05, speed=0, parallel=64) == 1
    assert window_size(0.25, speed=0, parallel=64) == 3
    assert window_size(None, speed=2_000, parallel=4) == 20_000


def test_without_a_rate_a_window_is_bounded() -> None:
    assert window_size(None, speed=0, parallel=1) == SMALLEST_WINDOW
    assert window_size(None, speed=1e9, parallel=1) == LARGEST_WINDOW


def test_slow_items_do_not_shrink_the_window_below_the_concurrent_items() -> None:
    """Items of a minute: 32 concurrent items are 0.5/s, and a window of 5 would allow only 5."""
    size = 1_000
    for _ in range(20):
        size = window_size(None, speed=min(32, size) / 60, parallel=32)
    assert size >= 32
