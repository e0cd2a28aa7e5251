"""Firings around clock changes, compared with a wall clock that is simulated step by step."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import BytesIO
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from drumline.domain.jobs.cron import PROBE, CronExpression, _segments_of_year
from tests.unit.cron_cases import (
    ANY_DAY,
    ANY_MONTH,
    ANY_WEEKDAY,
    US,
    ZERO,
    Expression,
    Field,
    fields,
    items,
    shown,
    us,
    weekday_fields,
)

ReadableZoneInfo: Any = import_module("zoneinfo._zoneinfo").ZoneInfo  # has its transitions
ZONES = (
    "Africa/Cairo",
    "Africa/Casablanca",  # goes back for Ramadan; its summer time is the standard time
    "America/Havana",  # midnight does not exist, or 00:30 occurs twice
    "America/New_York",
    "America/Santiago",
    "America/St_Johns",  # 3:30 and, until 2011, changes at 00:01
    "Antarctica/Troll",  # changes by two hours
    "Asia/Beirut",
    "Asia/Kolkata",
    "Asia/Pyongyang",  # changed by half an hour, permanently
    "Australia/Lord_Howe",  # changes by half an hour
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",  # has no 30 December 2011
    "Pacific/Kwajalein",  # has no 21 August 1993
    "UTC",
)


def fired(text: str, zone: str, start: str, end: str) -> list[str]:
    """The firings in (start, end], in local time."""
    found = CronExpression.parse(text).between(us(start, zone), us(end, zone), ZoneInfo(zone))
    return [shown(t, zone) for t in found]


def firings_by_simulation(
    expression: Expression, zone: str, start: int, end: int, step: int
) -> list[int]:
    """The firings by the rule, from a simulated wall clock; start and end in seconds of UTC.

    The simulation begins two days earlier, unless its step is one second.
    """
    tz = ZoneInfo(zone)
    fires = []
    begin = start - 2 * 86_400 if step == 60 else start
    passed = datetime.fromtimestamp(begin, tz).replace(tzinfo=None)
    for moment in range(begin + step, end + 1, step):
        local = datetime.fromtimestamp(moment, tz).replace(tzinfo=None)
        if len(expression.hour.values) == 24:
            hit = expression.matches(local)
        else:
            hit = False
            while passed < local:
                passed += timedelta(seconds=step)
                hit = hit or expression.matches(passed)
        if hit and moment > start:
            fires.append(moment)
    return fires


def changes(zone: str) -> list[int]:
    """The clock changes of a zone, 1973 to 2037. (Until 1972, Monrovia's offset had seconds.)"""
    tz = ZoneInfo(zone)
    found = []
    days = range(us("1973-01-01") // US, us("2037-01-01") // US, 86_400)
    for day, next_day in pairwise(days):
        if (before := _offset(tz, day)) != _offset(tz, next_day):
            found.append(next(m for m in range(day, next_day + 1, 60) if _offset(tz, m) != before))
    return found


def _offset(tz: ZoneInfo, moment: int) -> timedelta | None:
    return datetime.fromtimestamp(moment, tz).utcoffset()


CHANGES = {zone: changes(zone) or [us("2024-03-31") // US] for zone in ZONES}
near_a_change = st.sampled_from(ZONES).flatmap(
    lambda zone: st.tuples(st.just(zone), st.sampled_from(CHANGES[zone]))
)
early_hours = st.frozensets(st.integers(0, 3), min_size=1).map(
    lambda hours: Field(",".join(map(str, hours)), hours)
)
by_the_minute = st.builds(
    Expression,
    st.just(ZERO),
    fields(0, 59),
    st.one_of(fields(0, 23), early_hours),
    st.just(ANY_DAY),
    st.just(ANY_MONTH),
    st.one_of(st.just(ANY_WEEKDAY), weekday_fields),
)


@given(by_the_minute, near_a_change, st.integers(-27 * 60, 4 * 60), st.integers(60, 30 * 60))
@settings(max_examples=150)
@example(
    Expression(
        ZERO,
        Field("30", frozenset({30})),
        Field("2", frozenset({2})),
        ANY_DAY,
        ANY_MONTH,
        ANY_WEEKDAY,
    ),
    ("Europe/Berlin", int(datetime(2024, 10, 27, 1, tzinfo=UTC).timestamp())),
    15,  # the start is itself in the repeated hour
    120,
)
def test_firings_around_clock_changes_follow_the_rule(
    expression: Expression, where: tuple[str, int], before: int, length: int
) -> None:
    zone, change = where
    start = change + before * 60
    end = start + length * 60
    found = CronExpression.parse(expression.text).between(start * US, end * US, ZoneInfo(zone))
    assert [t // US for t in found] == firings_by_simulation(expression, zone, start, end, 60)


by_the_second = st.builds(
    Expression,
    fields(0, 59),
    fields(0, 59),
    fields(0, 23),
    st.just(ANY_DAY),
    st.just(ANY_MONTH),
    st.just(ANY_WEEKDAY),
)


@given(by_the_second, near_a_change)
@settings(max_examples=40)
def test_firings_by_the_second_follow_the_rule(
    expression: Expression, where: tuple[str, int]
) -> None:
    assume(len(expression.text) <= 64)
    zone, change = where
    start, end = change - 1_000, change + 4_000
    found = CronExpression.parse(expression.text).between(start * US, end * US, ZoneInfo(zone))
    assert [t // US for t in found] == firings_by_simulation(expression, zone, start, end, 1)


@given(items(0, 59), items(0, 23), near_a_change)
@settings(max_examples=60)
def test_fixed_times_agree_with_cronsim_through_clock_changes(
    minute: Field, hour: Field, where: tuple[str, int]
) -> None:
    assume(len(hour.values) < 24)
    zone, change = where
    # cronsim does not know which of two equal local times it starts from: start at a unique one.
    start = datetime.fromtimestamp(change - 3 * 86_400, ZoneInfo(zone))
    text = f"{minute.text} {hour.text} * * *"
    expected = []
    for moment in CronSim(text, start):
        if moment.timestamp() > change + 2 * 86_400:
            break
        expected.append(round(moment.timestamp()) * US)
    end_us = (change + 2 * 86_400) * US
    found = CronExpression.parse(text).between((change - 3 * 86_400) * US, end_us, ZoneInfo(zone))
    assert list(found) == expected


@given(
    by_the_minute,
    near_a_change,
    st.lists(st.integers(-30 * 3600 * US, 30 * 3600 * US), min_size=3, max_size=3),
)
@settings(max_examples=150)
def test_a_period_split_anywhere_has_the_same_firings(
    expression: Expression, where: tuple[str, int], cuts: list[int]
) -> None:
    """No firing is lost or doubled at a limit, also inside a gap or a repeated hour."""
    zone = ZoneInfo(where[0])
    cron = CronExpression.parse(expression.text)
    a, b, c = sorted(where[1] * US + cut for cut in cuts)
    whole = list(cron.between(a, c, zone))
    assert [*cron.between(a, b, zone), *cron.between(b, c, zone)] == whole
    assert whole == sorted(set(whole))
    following = cron.next_after(a, zone)
    assert following is not None
    assert following == (whole[0] if whole else following)
    assert following > (a if whole else c)


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "expected"),
    [
        # A gap: from 02:00 to 03:00 on 31 March 2024 in Berlin.
        ("30 2 * * *", "Europe/Berlin", "2024-03-31", "2024-03-31T12:00",
            ["2024-03-31T03:00:00+02:00"]),
        ("0,30 2 * * *", "Europe/Berlin", "2024-03-31", "2024-03-31T12:00",
            ["2024-03-31T03:00:00+02:00"]),
        ("30 2,3 * * *", "Europe/Berlin", "2024-03-31", "2024-03-31T12:00",
            ["2024-03-31T03:00:00+02:00", "2024-03-31T03:30:00+02:00"]),
        ("0 2,3 * * *", "Europe/Berlin", "2024-03-31", "2024-03-31T12:00",
            ["2024-03-31T03:00:00+02:00"]),
        ("*/15 2 * * *", "Europe/Berlin", "2024-03-31", "2024-03-31T12:00",
            ["2024-03-31T03:00:00+02:00"]),
        ("0 30 2 * * *", "Europe/Berlin", "2024-03-31", "2024-03-31T12:00",
            ["2024-03-31T03:00:00+02:00"]),
        ("0 */2 * * *", "Europe/Berlin", "2024-03-31T00:00", "2024-03-31T04:00",
            ["2024-03-31T03:00:00+02:00", "2024-03-31T04:00:00+02:00"]),
        ("*/30 * * * *", "Europe/Berlin", "2024-03-31T01:00", "2024-03-31T03:30",
            ["2024-03-31T01:30:00+01:00", "2024-03-31T03:00:00+02:00",
             "2024-03-31T03:30:00+02:00"]),
        ("45 * * * *", "Europe/Berlin", "2024-03-31T01:00", "2024-03-31T04:00",
            ["2024-03-31T01:45:00+01:00", "2024-03-31T03:45:00+02:00"]),
        # A repeated hour: 02:00 to 03:00 on 27 October 2024.
        ("30 2 * * *", "Europe/Berlin", "2024-10-27", "2024-10-27T12:00",
            ["2024-10-27T02:30:00+02:00"]),
        ("30 2 * * *", "Europe/Berlin", "2024-10-27T02:35+02:00", "2024-10-27T12:00", []),
        ("*/15 2 * * *", "Europe/Berlin", "2024-10-27", "2024-10-27T12:00",
            ["2024-10-27T02:00:00+02:00", "2024-10-27T02:15:00+02:00",
             "2024-10-27T02:30:00+02:00", "2024-10-27T02:45:00+02:00"]),
        ("0 30 2 * * *", "Europe/Berlin", "2024-10-27", "2024-10-27T12:00",
            ["2024-10-27T02:30:00+02:00"]),
        ("0 */2 * * *", "Europe/Berlin", "2024-10-27T00:00", "2024-10-27T04:00",
            ["2024-10-27T02:00:00+02:00", "2024-10-27T04:00:00+01:00"]),
        ("*/30 * * * *", "Europe/Berlin", "2024-10-27T01:30", "2024-10-27T03:00",
            ["2024-10-27T02:00:00+02:00", "2024-10-27T02:30:00+02:00",
             "2024-10-27T02:00:00+01:00", "2024-10-27T02:30:00+01:00",
             "2024-10-27T03:00:00+01:00"]),
        ("30 0-23 * * *", "Europe/Berlin", "2024-10-27T02:00+02:00", "2024-10-27T03:00",
            ["2024-10-27T02:30:00+02:00", "2024-10-27T02:30:00+01:00"]),
        # Midnight is skipped, or occurs twice.
        ("0 0 * * *", "America/Havana", "2024-03-09T12:00", "2024-03-10T12:00",
            ["2024-03-10T01:00:00-04:00"]),
        ("0 0 * * *", "America/Havana", "2024-11-02T12:00", "2024-11-03T12:00",
            ["2024-11-03T00:00:00-04:00"]),
        # A change of half an hour.
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-06", "2024-10-06T12:00",
            ["2024-10-06T02:30:00+11:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2024-04-07", "2024-04-07T12:00",
            ["2024-04-07T01:45:00+11:00"]),
        # A whole day is skipped.
        ("0 12 * * *", "Pacific/Apia", "2011-12-29", "2011-12-31T12:00",
            ["2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00",
             "2011-12-31T12:00:00+14:00"]),
        ("0 0 30 12 *", "Pacific/Apia", "2011-01-01", "2012-12-01", ["2011-12-31T00:00:00+14:00"]),
        ("0 * 30 12 *", "Pacific/Apia", "2011-01-01", "2012-12-01", []),
    ],
)  # fmt: skip
def test_clock_changes(text: str, zone: str, start: str, end: str, expected: list[str]) -> None:
    assert fired(text, zone, start, end) == expected


def invented_zone(changes: dict[str, int], before: int) -> ZoneInfo:
    """An invented zone: hours from UTC before and after each moment."""
    offsets = [before, *changes.values()]
    data = struct.pack(">4s16x6l", b"TZif", 0, 0, 0, len(changes), len(offsets), 4)
    data += b"".join(struct.pack(">l", us(moment) // US) for moment in changes)
    data += bytes(range(1, len(offsets)))
    data += b"".join(struct.pack(">lbB", hours * 3_600, 0, 0) for hours in offsets)
    return ZoneInfo.from_file(BytesIO(data + b"XXX\0"))


def test_a_repeated_hour_across_the_end_of_the_year() -> None:
    """01:30 in the new year is followed by 23:30 in the old one, half an hour before it ends."""
    zone = invented_zone({"2020-12-31T23:30": 0}, before=2)
    cron = CronExpression.parse("45 0,23 * * *")
    assert list(cron.between(us("2020-12-31T12:00"), us("2021-01-02"), zone)) == [
        us("2020-12-31T21:45"),
        us("2020-12-31T22:45"),
        us("2021-01-01T23:45"),
    ]


def test_a_change_at_the_very_end_of_the_year() -> None:
    for moment in ("2020-12-31T23:59:59", "2021-01-01T00:00:00", "2021-01-01T00:00:01"):
        zone = invented_zone({moment: 1}, before=0)
        found = CronExpression.parse("30 0 * * *").between(
            us("2020-12-31T12:00"), us("2021-01-02"), zone
        )
        assert list(found) == [us(moment), us("2021-01-01T23:30")]


def test_a_quarter_hourly_schedule_has_no_irregular_gap_in_a_year() -> None:
    cron = CronExpression.parse("*/15 * * * *")
    for zone in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"):
        found = list(cron.between(us("2024-01-01"), us("2025-01-01"), ZoneInfo(zone)))
        assert {b - a for a, b in pairwise(found)} == {900 * US}


def test_no_zone_changes_its_offset_twice_between_two_probes() -> None:
    closest = min(
        later - earlier
        for zone in zoneinfo.available_timezones()
        for earlier, later in _neighbours(ReadableZoneInfo(zone))
    )
    assert closest > PROBE


def _neighbours(zone: Any) -> Iterator[tuple[int, int]]:
    offsets = [kind.utcoff for kind in zone._ttinfos]
    changed = [
        moment
        for moment, before, after in zip(zone._trans_utc[1:], offsets, offsets[1:], strict=False)
        if before != after and moment >= 0
    ]
    return pairwise(changed)


@given(st.sampled_from(sorted(zoneinfo.available_timezones())), st.integers(1970, 2080))
@settings(max_examples=100)
@example("Pacific/Apia", 2011)
@example("Africa/Casablanca", 2024)
@example("Africa/Monrovia", 1972)
def test_every_offset_change_of_every_zone_is_found(zone: str, year: int) -> None:
    tz = ZoneInfo(zone)
    segments = _segments_of_year(tz, year)
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(year + 1, 1, 1, tzinfo=UTC).timestamp())
    assert [s[0] for s in segments] == [begin, *(s[1] for s in segments[:-1])]
    assert segments[-1][1] == end
    for first, last, offset in segments:
        inside = {*range(first, last, 3_600), last - 1}
        assert {_offset(tz, moment) for moment in inside} == {timedelta(seconds=offset)}
