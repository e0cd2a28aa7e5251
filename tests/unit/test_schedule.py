from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.domain.jobs.cron_syntax import BadCron, BadSchedule
from drumline.domain.jobs.schedule import (
    FIRST_LEAD,
    MAX_JITTER,
    MIN_LEAD,
    FiringCount,
    Schedule,
    materialise_until,
)

US = 1_000_000


def us(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * US


NOON = us("2024-06-01T12:00")


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("*/5 * * * *", "0 */5 * * * *"),
        ("@daily 17:30,08:00", "@daily 08:00,17:30"),
        ("@DAILY\t 08:00 , 08:00:00,23:59:59 ", "@daily 08:00,23:59:59"),
        ("@after 90s", "@after 1m30s"),
        ("@after 1h30m", "@after 1h30m"),
        ("@after 36h", "@after 1d12h"),
    ],
)
def test_text_is_normalised(text: str, normal: str) -> None:
    schedule = Schedule.parse(text)
    assert schedule.text == normal
    assert Schedule.parse(normal) == schedule


@pytest.mark.parametrize(
    ("text", "settings", "field", "why"),
    [
        ("@daily", {}, "cron_expr", "'' is not a time of the day"),
        ("@daily 24:00", {}, "cron_expr", "'24:00' is not a time of the day"),
        ("@daily 8:00", {}, "cron_expr", "'8:00' is not"),
        ("@daily 08:00,", {}, "cron_expr", "'' is not"),
        ("@daily 08:00;09:00", {}, "cron_expr", "'08:00;09:00' is not"),
        ("@daily ٠٨:00", {}, "cron_expr", "is not a time of the day"),
        (
            "@daily " + ",".join(f"00:{m:02}" for m in range(25)),
            {},
            "cron_expr",
            "25 times a day, at most 24 are allowed",
        ),
        ("@after", {}, "cron_expr", "'' is not a delay"),
        ("@after 90", {}, "cron_expr", "'90' is not a delay"),
        ("@after 0s", {}, "cron_expr", "0s is not between 1s and 366d"),
        ("@after 367d", {}, "cron_expr", "367d is not between"),
        ("@after 999999999999999999s", {}, "cron_expr", "is not a delay"),
        ("@after 5s 5s", {}, "cron_expr", "'5s 5s' is not a delay"),
        ("@hourly", {}, "cron_expr", "'@hourly' is not known"),
        ("", {}, "cron_expr", "5 or 6 fields"),
        (
            "0 25 * * *",
            {},
            "cron_expr",
            "hour field of the cron expression is wrong: 25 is not between",
        ),
        ("* * * * *", {"timezone": "Mars/Olympus"}, "timezone", "no time zone 'Mars/Olympus'"),
        ("* * * * *", {"timezone": "Europe"}, "timezone", "no time zone"),
        ("* * * * *", {"timezone": ""}, "timezone", "no time zone"),
        ("* * * * *", {"timezone": "../../etc/passwd"}, "timezone", "no time zone"),
        ("* * * * *", {"timezone": "a\0b"}, "timezone", "no time zone"),
        ("* * * * *", {"timezone": "localtime"}, "timezone", "not the name of a time zone"),
        ("* * * * *", {"timezone": "right/UTC"}, "timezone", "not the name of a time zone"),
        ("* * * * *", {"starts_at": 2, "ends_at": 1}, "ends_at", "before starts_at"),
        ("* * * * *", {"jitter_seconds": -1}, "jitter_seconds", "-1 is not between 0 and 3600"),
        ("* * * * *", {"jitter_seconds": MAX_JITTER + 1}, "jitter_seconds", "3601 is not"),
        ("* * * * *", {"jitter_seconds": float("nan")}, "jitter_seconds", "nan is not"),
    ],
)
def test_a_refusal_names_the_setting(
    text: str, settings: dict[str, Any], field: str, why: str
) -> None:
    with pytest.raises(BadSchedule) as caught:
        Schedule.parse(text, **settings)
    assert caught.value.details["field"] == field
    assert caught.value.details.get("cron_field", field) in str(caught.value)
    assert why in str(caught.value)


def test_a_bad_cron_expression_names_the_field_inside_it() -> None:
    with pytest.raises(BadCron, match="day-of-week"):
        Schedule.parse("0 0 * * MOO")


# ---------------------------------------------------------------- daily times


def test_daily_times_in_a_time_zone() -> None:
    schedule = Schedule.parse("@daily 08:00,17:30:15", "Asia/Kolkata")
    found = list(schedule.between(us("2024-01-01"), us("2024-01-03")))
    assert found == [
        us("2024-01-01T02:30"),
        us("2024-01-01T12:00:15"),
        us("2024-01-02T02:30"),
        us("2024-01-02T12:00:15"),
    ]
    assert [schedule.next_after(t) for t in found[:3]] == found[1:]


def test_daily_times_follow_the_rule_for_clock_changes() -> None:
    schedule = Schedule.parse("@daily 02:15,02:45,03:00,03:10", "Europe/Berlin")
    gap = schedule.between(us("2024-03-31"), us("2024-03-31T12:00"))
    assert list(gap) == [us("2024-03-31T01:00"), us("2024-03-31T01:10")]
    twice = schedule.between(us("2024-10-26T20:00"), us("2024-10-27T12:00"))
    assert list(twice) == [
        us("2024-10-27T00:15"),
        us("2024-10-27T00:45"),
        us("2024-10-27T02:00"),
        us("2024-10-27T02:10"),
    ]


@given(
    st.integers(0, 24 * 60 - 1),
    st.sampled_from(["UTC", "Europe/Berlin", "America/Havana", "Pacific/Apia"]),
    st.integers(us("2011-12-20"), us("2012-12-01")),
)
@settings(max_examples=100)
def test_a_daily_time_equals_its_cron_expression(time: int, zone: str, start: int) -> None:
    hour, minute = divmod(time, 60)
    daily = Schedule.parse(f"@daily {hour:02}:{minute:02}", zone)
    cron = Schedule.parse(f"{minute} {hour} * * *", zone)
    end = start + 300 * 86_400 * US
    assert list(daily.between(start, end)) == list(cron.between(start, end))
    assert daily.next_after(start) == cron.next_after(start)


# ---------------------------------------------------------------- fixed delay


def test_a_fixed_delay_counts_from_the_end_of_the_run() -> None:
    schedule = Schedule.parse("@after 90s")
    assert not schedule.by_clock
    assert schedule.first_after(NOON) == NOON
    assert schedule.next_after(NOON + 7) == NOON + 7 + 90 * US
    # No firing is known ahead, so none is materialised and none can be missed.
    assert list(schedule.between(0, NOON)) == []
    assert schedule.count_firings(0, NOON, 10) == FiringCount()


def test_a_fixed_delay_respects_starts_at_and_ends_at() -> None:
    schedule = Schedule.parse("@after 60s", starts_at=NOON, ends_at=NOON + 100 * US)
    assert schedule.first_after(NOON - 5 * US) == NOON
    assert schedule.first_after(NOON + 5 * US) == NOON + 5 * US
    assert schedule.first_after(NOON + 101 * US) is None
    assert schedule.next_after(NOON - 600 * US) == NOON
    assert schedule.next_after(NOON + 40 * US) == NOON + 100 * US
    assert schedule.next_after(NOON + 40 * US + 1) is None


# ---------------------------------------------------------------- starts_at, ends_at, limit


@pytest.mark.parametrize("text", ["0 * * * *", "@daily 12:00,13:00,14:00,15:00"])
def test_fires_from_starts_at_to_ends_at_both_included(text: str) -> None:
    hour = 3_600 * US
    schedule = Schedule.parse(text, starts_at=NOON, ends_at=NOON + 2 * hour)
    assert schedule.by_clock
    found = [NOON, NOON + hour, NOON + 2 * hour]
    assert list(schedule.between(0, NOON + 9 * hour)) == found
    assert list(schedule.between(NOON, NOON + hour)) == [NOON + hour]
    assert list(schedule.between(0, NOON + 9 * hour, limit=2)) == found[:2]
    assert schedule.first_after(0) == NOON
    assert schedule.next_after(0) == NOON
    assert schedule.next_after(NOON + 2 * hour) is None
    inside = Schedule.parse(text, starts_at=NOON + 1, ends_at=NOON + 2 * hour - 1)
    assert list(inside.between(0, NOON + 9 * hour)) == [NOON + hour]


def test_starts_at_may_equal_ends_at() -> None:
    schedule = Schedule.parse("0 * * * *", starts_at=NOON, ends_at=NOON)
    assert (schedule.next_after(0), schedule.next_after(NOON)) == (NOON, None)


def test_a_start_in_the_far_future_is_found() -> None:
    start = us("2150-01-01")
    assert Schedule.parse("0 0 * * *", starts_at=start).next_after(NOON) == start


# ---------------------------------------------------------------- count


@given(
    st.sampled_from(["* * * * * *", "*/7 * * * *", "0 2 * * *", "@daily 01:00,02:30,22:00"]),
    st.integers(0, 3 * 86_400 * US),
    st.integers(0, 30_000 * US),
    st.integers(0, 12),
)
@settings(max_examples=80)
def test_the_count_of_firings_equals_their_number(
    text: str, after: int, length: int, keep: int
) -> None:
    schedule = Schedule.parse(text, "Europe/Berlin")
    start = us("2024-10-26") + after
    found = list(schedule.between(start, start + length))
    tally = schedule.count_firings(start, start + length, keep)
    assert tally.count == len(found)
    assert tally.first == (found[0] if found else 0)
    assert list(tally.newest) == found[max(len(found) - keep, 0) :]


def test_the_firings_of_a_year_of_seconds_are_counted() -> None:
    end = us("2025-01-01")
    tally = Schedule.parse("* * * * * *", "Europe/Berlin").count_firings(us("2024-01-01"), end, 2)
    assert tally == FiringCount(366 * 86_400, us("2024-01-01T00:00:01"), (end - US, end))


# ---------------------------------------------------------------- jitter


def test_jitter_is_deterministic_bounded_and_evenly_distributed() -> None:
    schedule = Schedule.parse("* * * * *", jitter_seconds=10)
    times = range(NOON, NOON + 1000 * 60 * US, 60 * US)
    delays = [schedule.due_at(7, t) - t for t in times]
    assert delays == [schedule.due_at(7, t) - t for t in times]
    assert min(delays) >= 0
    assert max(delays) <= 10 * US
    # Of 1,000 evenly distributed delays about 100 fall into each second; 60 is 4 sigma away.
    assert all(sum(s * US <= d < (s + 1) * US for d in delays) > 60 for s in range(10))


def test_jitter_differs_between_jobs_and_firings() -> None:
    schedule = Schedule.parse("* * * * *", jitter_seconds=10)
    assert len({schedule.due_at(job, NOON) for job in range(50)}) == 50
    assert len({schedule.due_at(1, NOON + n * US) - n * US for n in range(50)}) == 50


def test_jitter_has_a_fixed_value() -> None:
    assert Schedule.parse("* * * * *", jitter_seconds=10).due_at(7, NOON) - NOON == 1_776_361
    assert Schedule.parse("* * * * *").due_at(7, NOON) == NOON


# ---------------------------------------------------------------- ahead


@given(left=st.integers(-100 * US, 100 * US), step=st.integers(US, 3_600 * US))
def test_firings_are_materialised_two_steps_ahead_or_ten_seconds_at_first(
    left: int, step: int
) -> None:
    until = materialise_until(NOON + left, NOON, step)
    if left >= MIN_LEAD:
        assert until == NOON + 2 * step
    else:
        assert until == NOON + min(2 * step, FIRST_LEAD)
    again = materialise_until(until, NOON, step)
    assert again == NOON + 2 * step, "whoever has some has no hurry"
