"""Firings of cron expressions in UTC: compared with cronsim and croniter, and at their limits."""

from __future__ import annotations

import re
from calendar import isleap
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError, croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drumline.domain.jobs.cron import HORIZON_US, CronExpression
from drumline.domain.jobs.cron_syntax import BadCron
from tests.unit.cron_cases import (
    US,
    Expression,
    Field,
    fields,
    last_day_fields,
    nth_weekday_fields,
    shown,
    us,
    weekday_fields,
)

expressions = st.builds(
    Expression,
    fields(0, 59),
    fields(0, 59),
    fields(0, 23),
    st.one_of(fields(1, 31), last_day_fields),
    fields(1, 12),
    st.one_of(weekday_fields, nth_weekday_fields),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ANY_60, ANY_24 = Field("*", frozenset(range(60))), Field("*", frozenset(range(24)))


def never_fires(expression: Expression) -> bool:
    """By the calendar: in 28 years each month begins on each weekday, February in both lengths."""
    noon = (datetime(2000, 1, 1, 12) + timedelta(days=day) for day in range(28 * 366))
    any_time = {"second": ANY_60, "minute": ANY_60, "hour": ANY_24}
    by_day = replace(expression, **any_time)
    return not any(by_day.matches(day) for day in noon)


@given(expressions, st.datetimes(datetime(1971, 1, 1), datetime(2099, 1, 1)))
@settings(max_examples=300)
def test_firings_equal_those_of_cronsim_and_croniter(
    expression: Expression, start: datetime
) -> None:
    assume(len(expression.text) <= 64)
    start = start.replace(tzinfo=UTC)
    try:
        cron = CronExpression.parse(expression.text)
    except BadCron as error:
        assert "would never fire" in str(error)
        assert never_fires(expression)
        return
    start_us = (start - EPOCH) // timedelta(microseconds=1)
    expected = [
        round(moment.timestamp()) * US
        for moment in islice(CronSim(expression.cronsim_text, start), 15)
    ]
    found = cron.between(start_us, expected[-1], ZoneInfo("UTC"))
    assert list(found) == expected
    assert cron.next_after(start_us, ZoneInfo("UTC")) == expected[0]
    if not (
        cron.days.either and cron.days.nth_weekdays
    ):  # see test_known_differences_from_croniter
        assert croniter_fires(expression.text, start, 5) == expected[:5]


def croniter_fires(text: str, start: datetime, count: int) -> list[int]:
    """The option implement_cron_bug lets a day field with a star only restrict the other one."""
    text = re.sub(r"\b(\d+)-\1\b", r"\1", text)  # see test_known_differences_from_croniter
    times = croniter(text, start, float, second_at_beginning=True, implement_cron_bug=True)
    return [round(times.get_next()) * US for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        # croniter reads a range of one value as all values.
        ("0 5-5 * * *", ["01 05:00", "02 05:00"], ["01 01:00", "01 02:00"]),
        # croniter applies `#` and `L5` to both sides of the "or" and finds no date.
        ("0 0 1 * FRI#2", ["12 00:00", "01 00:00"], []),
        # Without implement_cron_bug, croniter fires on days 1, 10, 19, 28 and on Fridays.
        ("0 0 */9 * FRI", ["19 00:00", "01 00:00"], ["05 00:00", "10 00:00"]),
    ],
)
def test_known_differences_from_croniter(text: str, ours: list[str], theirs: list[str]) -> None:
    start, zone = datetime(2024, 1, 1, tzinfo=UTC), ZoneInfo("UTC")
    cron = CronExpression.parse(text)
    found = islice(cron.between(us("2024-01-01"), us("2025-01-01"), zone), 2)
    assert [f"{datetime.fromtimestamp(t // US, UTC):%d %H:%M}" for t in found] == ours
    times = croniter(text, start, datetime)
    try:
        assert [f"{times.get_next():%d %H:%M}" for _ in range(2)] == theirs
    except CroniterBadDateError:
        assert theirs == []


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("* * * * *", "2024-02-28T23:59:30", ["2024-02-29T00:00:00", "2024-02-29T00:01:00"]),
        ("*/15 * * * * *", "2024-12-31T23:59:45", ["2025-01-01T00:00:00", "2025-01-01T00:00:15"]),
        ("5/20 * * * *", "2024-01-01", ["2024-01-01T00:05:00", "2024-01-01T00:25:00"]),
        # Both day fields are restricted: one of them must match. 13 December 2024 is a Friday.
        ("0 0 13 * FRI", "2024-12-06T01:00", ["2024-12-13T00:00:00", "2024-12-20T00:00:00"]),
        ("0 0 15 * FRI", "2024-12-13T01:00", ["2024-12-15T00:00:00", "2024-12-20T00:00:00"]),
        # A day field that begins with a star only restricts the other one.
        ("0 0 */2 * FRI", "2024-12-01", ["2024-12-13T00:00:00", "2024-12-27T00:00:00"]),
        ("0 0 13 * */5", "2024-09-01", ["2024-09-13T00:00:00", "2024-10-13T00:00:00"]),
        ("0 0 0 ? * MON", "2024-12-01", ["2024-12-02T00:00:00", "2024-12-09T00:00:00"]),
        ("0 0 0 1 * ?", "2024-12-01", ["2025-01-01T00:00:00", "2025-02-01T00:00:00"]),
        ("0 0 * * 7", "2024-12-01", ["2024-12-08T00:00:00", "2024-12-15T00:00:00"]),
        ("0 0 * * sat-sun", "2024-12-01", ["2024-12-07T00:00:00", "2024-12-08T00:00:00"]),
        ("0 0 * * 1/2", "2024-12-05", ["2024-12-06T00:00:00", "2024-12-09T00:00:00"]),
        ("0 0 31 feb-apr *", "2024-01-01", ["2024-03-31T00:00:00", "2025-03-31T00:00:00"]),
        ("0 0 29 2 *", "2096-03-01", ["2104-02-29T00:00:00", "2108-02-29T00:00:00"]),
        ("0 0 L * *", "2024-02-01", ["2024-02-29T00:00:00", "2024-03-31T00:00:00"]),
        ("0 0 l feb ?", "2024-03-01", ["2025-02-28T00:00:00", "2026-02-28T00:00:00"]),
        ("0 0 30,L * *", "2024-01-01", ["2024-01-30T00:00:00", "2024-01-31T00:00:00"]),
        ("0 0 30-L * *", "2024-01-31", ["2024-03-30T00:00:00", "2024-03-31T00:00:00"]),
        ("0 0 * * fri#2", "2024-01-01", ["2024-01-12T00:00:00", "2024-02-09T00:00:00"]),
        ("0 0 * * MON#1,1#3", "2024-01-02", ["2024-01-15T00:00:00", "2024-02-05T00:00:00"]),
        ("0 0 * * 7#5", "2024-01-01", ["2024-03-31T00:00:00", "2024-06-30T00:00:00"]),
        ("0 0 * * L5", "2024-01-01", ["2024-01-26T00:00:00", "2024-02-23T00:00:00"]),
        ("0 0 * * L0,L7", "2024-02-01", ["2024-02-25T00:00:00", "2024-03-31T00:00:00"]),
        ("0 0 L * L5", "2024-01-01", ["2024-01-26T00:00:00", "2024-01-31T00:00:00"]),
        ("0 0 29 2 FRI#5", "2024-03-01", ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        # Days 1, 13 and 25, if they are second Fridays.
        ("0 0 */12 * FRI#2", "2024-01-01", ["2024-09-13T00:00:00", "2024-12-13T00:00:00"]),
        # The day does not exist, but the weekday does.
        ("0 0 31 2 MON", "2024-02-20", ["2024-02-26T00:00:00", "2025-02-03T00:00:00"]),
    ],
)
def test_the_next_two_firings(text: str, start: str, expected: list[str]) -> None:
    cron, zone = CronExpression.parse(text), ZoneInfo("UTC")
    first = cron.next_after(us(start), zone)
    assert first is not None
    second = cron.next_after(first, zone)
    assert second is not None
    assert [shown(t, "UTC").removesuffix("+00:00") for t in (first, second)] == expected


def test_the_start_is_exclusive_and_the_end_inclusive() -> None:
    cron, zone, t = CronExpression.parse("* * * * * *"), ZoneInfo("UTC"), us("2024-01-01")
    assert list(cron.between(t, t + US, zone)) == [t + US]
    assert list(cron.between(t - 1, t + US - 1, zone)) == [t]
    assert list(cron.between(t, t, zone)) == []
    assert cron.next_after(t - 1, zone) == t
    assert cron.next_after(t, zone) == t + US


def test_the_horizon_covers_the_rarest_day() -> None:
    """29 February on a Sunday, from years of a whole cycle of 400."""
    cron = CronExpression.parse("0 0 29 2 */7")
    sundays = [
        us(f"{year}-02-29")
        for year in range(2000, 2500)
        if isleap(year) and date(year, 2, 29).isoweekday() == 7
    ]
    assert max(b - a for a, b in pairwise(sundays)) < HORIZON_US
    for year in range(2000, 2400, 7):
        start = us(f"{year}-06-01")
        assert cron.next_after(start, ZoneInfo("UTC")) == next(t for t in sundays if t > start)


def test_firings_are_limited_to_the_years_1970_to_9000() -> None:
    cron = CronExpression.parse("0 0 1 1 *")
    for zone in ("UTC", "America/New_York", "Asia/Kolkata"):
        tz = ZoneInfo(zone)
        first = cron.next_after(-(10**18), tz)
        assert first is None  # 31,688 years earlier: beyond the horizon, not an error
        assert cron.next_after(us("8999-06-01"), tz) in (None, us("9000-01-01", zone))
        assert cron.next_after(us("9100-01-01"), tz) is None
    hourly = CronExpression.parse("0 5 * * *")
    assert hourly.next_after(-US, ZoneInfo("America/New_York")) == us("1970-01-01T10:00")
    # 20:00 on the last evening of 1969 in New York is after midnight of 1970 in UTC.
    evening = CronExpression.parse("0 20 * * *")
    assert evening.next_after(-US, ZoneInfo("America/New_York")) == us("1970-01-01T01:00")
