"""Cron against cronsim where it means the same, and against a wall clock watched step by step."""

from __future__ import annotations

import struct
import zoneinfo
from calendar import isleap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from io import BytesIO
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from drumline.domain.cron import (
    HORIZON_US,
    PROBE,
    BadCron,
    BadSchedule,
    CronExpression,
    _segments_of_year,
)
from drumline.errors import WrongUse

US = 1_000_000
ReadableZoneInfo: Any = import_module("zoneinfo._zoneinfo").ZoneInfo  # it shows its changes
ZONES = (
    "Africa/Cairo",
    "Africa/Casablanca",  # goes back for Ramadan: its summer time is the standard
    "America/Havana",  # midnight does not exist, or 00:30 occurs twice
    "America/New_York",
    "America/Santiago",
    "America/St_Johns",  # 3:30 and, until 2011, changes at 00:01
    "Antarctica/Troll",  # two hours at once
    "Asia/Beirut",
    "Asia/Kolkata",
    "Asia/Pyongyang",  # half an hour, for good
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",  # has no 30 December 2011
    "Pacific/Kwajalein",  # has no 21 August 1993
    "UTC",
)


def us(text: str, zone: str = "UTC") -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone))
    return round(moment.timestamp()) * US


def shown(t_us: int, zone: str) -> str:
    return datetime.fromtimestamp(t_us // US, ZoneInfo(zone)).isoformat()


def fired(text: str, zone: str, start: str, end: str) -> list[str]:
    """The firings in (start, end], as that zone's clock shows them."""
    found = CronExpression.parse(text).between(us(start, zone), us(end, zone), ZoneInfo(zone))
    return [shown(t, zone) for t in found]


# ---------------------------------------------------------------- generated expressions


@dataclass(frozen=True)
class Field:
    """A field as text, and independently of any parser the values that it means."""

    text: str
    values: frozenset[int]


@st.composite
def items(draw: st.DrawFn, low: int, high: int) -> Field:
    a, b = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
    step = draw(st.integers(1, high - low + 1))
    match draw(st.sampled_from(["value", "range", "stepped", "open"])):
        case "range":
            return Field(f"{a}-{b}", frozenset(range(a, b + 1)))
        case "stepped":
            assume(a < b)  # cronsim reads 5-5/2 as 5/2
            return Field(f"{a}-{b}/{step}", frozenset(range(a, b + 1, step)))
        case "open":
            return Field(f"{a}/{step}", frozenset(range(a, high + 1, step)))
        case _:
            return Field(str(a), frozenset({a}))


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> Field:
    if draw(st.booleans()):
        step = draw(st.sampled_from([1, 1, 2, 5, high - low + 1]))
        text = "*" if step == 1 else f"*/{step}"
        return Field(text, frozenset(range(low, high + 1, step)))
    parts = draw(st.lists(items(low, high), min_size=1, max_size=2))
    return Field(",".join(p.text for p in parts), frozenset().union(*(p.values for p in parts)))


weekday_fields = st.one_of(
    st.just(Field("*", frozenset(range(7)))),
    st.just(Field("*/2", frozenset({0, 2, 4, 6}))),
    st.integers(0, 7).map(lambda day: Field(str(day), frozenset({day % 7}))),
    st.just(Field("mon-Fri", frozenset({1, 2, 3, 4, 5}))),
    st.just(Field("5-7", frozenset({5, 6, 0}))),
    st.just(Field("SUN,3", frozenset({0, 3}))),
)


@dataclass(frozen=True)
class Expression:
    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(
            f.text
            for f in (self.second, self.minute, self.hour, self.day, self.month, self.weekday)
        )

    def matches(self, local: datetime) -> bool:
        by_day = local.day in self.day.values
        by_weekday = local.isoweekday() % 7 in self.weekday.values
        if "*" in (self.day.text[0], self.weekday.text[0]):
            on_day = by_day and by_weekday
        else:
            on_day = by_day or by_weekday
        return (
            on_day
            and local.month in self.month.values
            and local.hour in self.hour.values
            and local.minute in self.minute.values
            and local.second in self.second.values
        )


ZERO = Field("0", frozenset({0}))
ANY_DAY = Field("*", frozenset(range(1, 32)))
ANY_MONTH = Field("*", frozenset(range(1, 13)))
ANY_WEEKDAY = Field("*", frozenset(range(7)))
expressions = st.builds(
    Expression,
    fields(0, 59),
    fields(0, 59),
    fields(0, 23),
    fields(1, 31),
    fields(1, 12),
    weekday_fields,
)


@given(expressions, st.datetimes(datetime(1971, 1, 1), datetime(2099, 1, 1)))
@settings(max_examples=300, deadline=None)
def test_fires_when_cronsim_does(expression: Expression, start: datetime) -> None:
    assume(len(expression.text) <= 64)
    start = start.replace(tzinfo=UTC)
    try:
        cron = CronExpression.parse(expression.text)
    except BadCron as error:
        assert "would never fire" in str(error)
        assert min(expression.day.values) > 29
        return
    start_us = (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    expected = [
        round(moment.timestamp()) * US for moment in islice(CronSim(expression.text, start), 15)
    ]
    found = cron.between(start_us, expected[-1], ZoneInfo("UTC"))
    assert list(found) == expected
    assert cron.next_after(start_us, ZoneInfo("UTC")) == expected[0]


# ---------------------------------------------------------------- clock changes


def watched(expression: Expression, zone: str, start: int, end: int, step: int) -> list[int]:
    """The rule as it is written, by watching a wall clock; start and end in seconds of UTC.

    It watches from two days before, unless each second counts.
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
    """Moments at which the zone's clock is set, 1973 to 2037. (Monrovia, 1972, counts seconds.)"""
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
@settings(max_examples=150, deadline=None)
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
def test_follows_the_rule_through_clock_changes(
    expression: Expression, where: tuple[str, int], before: int, length: int
) -> None:
    zone, change = where
    start = change + before * 60
    end = start + length * 60
    found = CronExpression.parse(expression.text).between(start * US, end * US, ZoneInfo(zone))
    assert [t // US for t in found] == watched(expression, zone, start, end, 60)


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
@settings(max_examples=40, deadline=None)
def test_follows_the_rule_by_the_second(expression: Expression, where: tuple[str, int]) -> None:
    assume(len(expression.text) <= 64)
    zone, change = where
    start, end = change - 1_000, change + 4_000
    found = CronExpression.parse(expression.text).between(start * US, end * US, ZoneInfo(zone))
    assert [t // US for t in found] == watched(expression, zone, start, end, 1)


@given(items(0, 59), items(0, 23), near_a_change)
@settings(max_examples=60, deadline=None)
def test_fixed_times_agree_with_cronsim_through_clock_changes(
    minute: Field, hour: Field, where: tuple[str, int]
) -> None:
    assume(len(hour.values) < 24)
    zone, change = where
    # cronsim forgets which of two equal times it starts from: start where there is only one.
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
@settings(max_examples=150, deadline=None)
def test_a_stretch_cut_anywhere_fires_the_same(
    expression: Expression, where: tuple[str, int], cuts: list[int]
) -> None:
    """No firing is lost or doubled at a border, also one inside a gap or a repeated hour."""
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
        # Midnight itself is missing, or comes twice.
        ("0 0 * * *", "America/Havana", "2024-03-09T12:00", "2024-03-10T12:00",
            ["2024-03-10T01:00:00-04:00"]),
        ("0 0 * * *", "America/Havana", "2024-11-02T12:00", "2024-11-03T12:00",
            ["2024-11-03T00:00:00-04:00"]),
        # Half an hour.
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-06", "2024-10-06T12:00",
            ["2024-10-06T02:30:00+11:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2024-04-07", "2024-04-07T12:00",
            ["2024-04-07T01:45:00+11:00"]),
        # A whole day is missing.
        ("0 12 * * *", "Pacific/Apia", "2011-12-29", "2011-12-31T12:00",
            ["2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00",
             "2011-12-31T12:00:00+14:00"]),
        ("0 0 30 12 *", "Pacific/Apia", "2011-01-01", "2012-12-01", ["2011-12-31T00:00:00+14:00"]),
        ("0 * 30 12 *", "Pacific/Apia", "2011-01-01", "2012-12-01", []),
    ],
)  # fmt: skip
def test_clock_changes(text: str, zone: str, start: str, end: str, expected: list[str]) -> None:
    assert fired(text, zone, start, end) == expected


def made_up_zone(changes: dict[str, int], before: int) -> ZoneInfo:
    """A zone that no country has (yet): hours from UTC before and after each moment."""
    offsets = [before, *changes.values()]
    data = struct.pack(">4s16x6l", b"TZif", 0, 0, 0, len(changes), len(offsets), 4)
    data += b"".join(struct.pack(">l", us(moment) // US) for moment in changes)
    data += bytes(range(1, len(offsets)))
    data += b"".join(struct.pack(">lbB", hours * 3_600, 0, 0) for hours in offsets)
    return ZoneInfo.from_file(BytesIO(data + b"XXX\0"))


def test_a_repeated_hour_that_the_end_of_the_year_cuts_in_two() -> None:
    """01:30 in the new year is followed by 23:30 in the old one, half an hour before it ends."""
    zone = made_up_zone({"2020-12-31T23:30": 0}, before=2)
    cron = CronExpression.parse("45 0,23 * * *")
    assert list(cron.between(us("2020-12-31T12:00"), us("2021-01-02"), zone)) == [
        us("2020-12-31T21:45"),
        us("2020-12-31T22:45"),
        us("2021-01-01T23:45"),
    ]


def test_a_change_at_the_very_end_of_the_year() -> None:
    for moment in ("2020-12-31T23:59:59", "2021-01-01T00:00:00", "2021-01-01T00:00:01"):
        zone = made_up_zone({moment: 1}, before=0)
        found = CronExpression.parse("30 0 * * *").between(
            us("2020-12-31T12:00"), us("2021-01-02"), zone
        )
        assert list(found) == [us(moment), us("2021-01-01T23:30")]


def test_every_quarter_of_an_hour_stays_every_quarter_through_a_whole_year() -> None:
    cron = CronExpression.parse("*/15 * * * *")
    for zone in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"):
        found = list(cron.between(us("2024-01-01"), us("2025-01-01"), ZoneInfo(zone)))
        assert {b - a for a, b in pairwise(found)} == {900 * US}


def test_no_zone_changes_its_clock_twice_between_two_probes() -> None:
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
@settings(max_examples=100, deadline=None)
@example("Pacific/Apia", 2011)
@example("Africa/Casablanca", 2024)
@example("Africa/Monrovia", 1972)
def test_finds_every_change_of_every_zone(zone: str, year: int) -> None:
    tz = ZoneInfo(zone)
    segments = _segments_of_year(tz, year)
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(year + 1, 1, 1, tzinfo=UTC).timestamp())
    assert [s[0] for s in segments] == [begin, *(s[1] for s in segments[:-1])]
    assert segments[-1][1] == end
    for first, last, offset in segments:
        inside = {*range(first, last, 3_600), last - 1}
        assert {_offset(tz, moment) for moment in inside} == {timedelta(seconds=offset)}


# ---------------------------------------------------------------- days, borders, horizons


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("* * * * *", "2024-02-28T23:59:30", ["2024-02-29T00:00:00", "2024-02-29T00:01:00"]),
        ("*/15 * * * * *", "2024-12-31T23:59:45", ["2025-01-01T00:00:00", "2025-01-01T00:00:15"]),
        ("5/20 * * * *", "2024-01-01", ["2024-01-01T00:05:00", "2024-01-01T00:25:00"]),
        # Both days restricted: either will do. 13 December 2024 is a Friday.
        ("0 0 13 * FRI", "2024-12-06T01:00", ["2024-12-13T00:00:00", "2024-12-20T00:00:00"]),
        ("0 0 15 * FRI", "2024-12-13T01:00", ["2024-12-15T00:00:00", "2024-12-20T00:00:00"]),
        # A day field that begins with a star narrows the other one down.
        ("0 0 */2 * FRI", "2024-12-01", ["2024-12-13T00:00:00", "2024-12-27T00:00:00"]),
        ("0 0 13 * */5", "2024-09-01", ["2024-09-13T00:00:00", "2024-10-13T00:00:00"]),
        ("0 0 0 ? * MON", "2024-12-01", ["2024-12-02T00:00:00", "2024-12-09T00:00:00"]),
        ("0 0 0 1 * ?", "2024-12-01", ["2025-01-01T00:00:00", "2025-02-01T00:00:00"]),
        ("0 0 * * 7", "2024-12-01", ["2024-12-08T00:00:00", "2024-12-15T00:00:00"]),
        ("0 0 * * sat-sun", "2024-12-01", ["2024-12-07T00:00:00", "2024-12-08T00:00:00"]),
        ("0 0 * * 1/2", "2024-12-05", ["2024-12-06T00:00:00", "2024-12-09T00:00:00"]),
        ("0 0 31 feb-apr *", "2024-01-01", ["2024-03-31T00:00:00", "2025-03-31T00:00:00"]),
        ("0 0 29 2 *", "2096-03-01", ["2104-02-29T00:00:00", "2108-02-29T00:00:00"]),
        # It would never fire by its day, but a weekday will do.
        ("0 0 31 2 MON", "2024-02-20", ["2024-02-26T00:00:00", "2025-02-03T00:00:00"]),
    ],
)
def test_golden(text: str, start: str, expected: list[str]) -> None:
    cron, zone = CronExpression.parse(text), ZoneInfo("UTC")
    first = cron.next_after(us(start), zone)
    assert first is not None
    second = cron.next_after(first, zone)
    assert second is not None
    assert [shown(t, "UTC").removesuffix("+00:00") for t in (first, second)] == expected


def test_the_start_is_left_out_and_the_end_is_in() -> None:
    cron, zone, t = CronExpression.parse("* * * * * *"), ZoneInfo("UTC"), us("2024-01-01")
    assert list(cron.between(t, t + US, zone)) == [t + US]
    assert list(cron.between(t - 1, t + US - 1, zone)) == [t]
    assert list(cron.between(t, t, zone)) == []
    assert cron.next_after(t - 1, zone) == t
    assert cron.next_after(t, zone) == t + US


def test_looks_far_enough_for_the_rarest_day_there_is() -> None:
    """29 February on a Sunday, from each year of a whole cycle of 400."""
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


def test_works_from_1970_to_9000_and_nothing_fires_outside() -> None:
    cron = CronExpression.parse("0 0 1 1 *")
    for zone in ("UTC", "America/New_York", "Asia/Kolkata"):
        tz = ZoneInfo(zone)
        first = cron.next_after(-(10**18), tz)
        assert first is None  # 31,688 years before: past the horizon, not an error
        assert cron.next_after(us("8999-06-01"), tz) in (None, us("9000-01-01", zone))
        assert cron.next_after(us("9100-01-01"), tz) is None
    hourly = CronExpression.parse("0 5 * * *")
    assert hourly.next_after(-US, ZoneInfo("America/New_York")) == us("1970-01-01T10:00")
    # 20:00 on the last evening of 1969 in New York is after midnight of 1970 in UTC.
    evening = CronExpression.parse("0 20 * * *")
    assert evening.next_after(-US, ZoneInfo("America/New_York")) == us("1970-01-01T01:00")


# ---------------------------------------------------------------- parsing


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("*/15 * * * * *", "*/15 * * * * *"),
        ("*/5 * * * *", "0 */5 * * * *"),
        ("  0\t12  ? *  mon-fri ", "0 0 12 ? * MON-FRI"),
        ("0 0 1 jan,Jul *", "0 0 0 1 JAN,JUL *"),
    ],
)
def test_normalised(text: str, normalised: str) -> None:
    cron = CronExpression.parse(text)
    assert cron.normalised == normalised
    assert CronExpression.parse(normalised) == cron


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        ("60 * * * * *", "second", "60 is not between 0 and 59"),
        ("0 60 * * * *", "minute", "60 is not between 0 and 59"),
        ("61 * * * *", "minute", "61 is not between"),
        ("0 24 * * *", "hour", "24 is not between 0 and 23"),
        ("0 0 0 * *", "day-of-month", "0 is not between 1 and 31"),
        ("0 0 32 * *", "day-of-month", "32 is not between"),
        ("0 0 * 13 *", "month", "13 is not between 1 and 12"),
        ("0 0 * FOO *", "month", "'FOO' is not a number or one of JAN FEB"),
        ("0 0 * * 8", "day-of-week", "8 is not between 0 and 7"),
        ("0 0 * * MOO", "day-of-week", "'MOO' is not a number or one of SUN"),
        ("MON * * * *", "minute", "'MON' is not a number"),
        ("*/0 * * * *", "minute", "step 0 is not between 1 and 60"),
        ("*/90 * * * *", "minute", "step 90 is not between 1 and 60"),
        ("*/x * * * *", "minute", "'X' is not a number"),
        ("30-10 * * * *", "minute", "'30-10' ends before it begins"),
        ("0 22-2 * * *", "hour", "'22-2' ends before it begins"),
        ("1,,2 * * * *", "minute", "'' is not a value"),
        ("1, * * * *", "minute", "'' is not a value"),
        ("0 -5 * * *", "hour", "'-5' is not a value"),
        ("0 1-2-3 * * *", "hour", "'1-2-3' is not a value"),
        ("0 0 L * *", "day-of-month", "'L' is not a number"),
        ("0 0 * * 5#2", "day-of-week", "'5#2' is not a value"),
        ("٣ * * * *", "minute", "'٣' is not a number"),
        ("0 0 31 2 *", "day-of-month", "never fire, no chosen month has a day 31"),
        ("0 0 30 2 ?", "day-of-month", "never fire"),
        ("0 0 31 4,6,9,11 *", "day-of-month", "never fire"),
        ("0 0 30-31 FEB */2", "day-of-month", "never fire, no chosen month has a day 30"),
    ],
)
def test_a_bad_field_is_named(text: str, field: str, why: str) -> None:
    with pytest.raises(BadCron) as caught:
        CronExpression.parse(text)
    assert caught.value.field == field
    assert f"The {field} field of the cron expression is wrong" in str(caught.value)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "5 or 6 fields"),
        ("* * * *", "not 4"),
        ("* * * * * * *", "not 7"),
        ("@hourly", "not 1"),
        ("0 0 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23 * * *", "64"),
    ],
)
def test_a_bad_expression_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadSchedule, match=why) as caught:
        CronExpression.parse(text)
    assert caught.value.field == "cron_expr"
    assert isinstance(caught.value, WrongUse)


def test_64_characters_are_allowed_and_65_are_not() -> None:
    text = "0 0 " + ",".join(["10"] * 17) + ",10 1 1 *"
    assert len(text) == 63
    assert len(CronExpression.parse("0" + text).normalised) == 64
    with pytest.raises(BadSchedule, match="64"):
        CronExpression.parse("00" + text)
    five = text.removeprefix("0 ") + " "
    assert CronExpression.parse(five).normalised == text


@given(st.text(alphabet="0123456789*/?,- LWMON#@\n\x00é", max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        cron = CronExpression.parse(text)
    except BadSchedule as error:
        assert error.field
    else:
        assert cron.next_after(us("2024-01-01"), ZoneInfo("UTC")) is not None
