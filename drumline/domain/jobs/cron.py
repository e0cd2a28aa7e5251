"""When cron expressions fire, and the rule for clock changes.

An expression describes times on a wall clock; a time zone maps them to moments.

- **Chosen hours** (the hour field excludes at least one hour; also all daily times): a local time
  fires once, at the first moment at which the wall clock reaches *or passes* it. A time that a
  clock change skips fires at the first moment after the gap, and a time that occurs twice fires at
  its first occurrence. Firings at the same moment are one firing.
- **Every hour** (the hour field allows all 24 hours): the expression fires whenever the wall clock
  shows a matching time. `*/15 * * * *` fires every 15 minutes throughout a repeated hour, and a
  skipped hour adds no firing.

Firings depend on the set of times alone, not on the spelling: `0-23` is `*`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from drumline.domain.jobs.cron_syntax import LAST, BadCron, read_field, split_fields

SECOND_US = 1_000_000
HOUR, DAY = 3_600, 86_400
EPOCH = date(1970, 1, 1).toordinal()
END_OF_TIME = int(datetime(9000, 1, 1, tzinfo=UTC).timestamp())
HORIZON_US = 50 * 366 * DAY * SECOND_US
"""How far to search: 29 February on a given weekday can be 40 years away (2100 has none)."""

# Since 1970 no zone has changed its offset twice within 6.9 days (a test reads every zone).
PROBE = 3 * DAY

_MONTH_LENGTHS: dict[int, tuple[int, ...]] = {
    **dict.fromkeys((1, 3, 5, 7, 8, 10, 12), (31,)),
    **dict.fromkeys((4, 6, 9, 11), (30,)),
    2: (28, 29),
}

Spans = Iterator[tuple[int, Sequence[int]]]
"""Times in seconds, as a base and ascending offsets: all firings of an hour are one element."""


class LocalTimes(Protocol):
    """Times on a wall clock, in seconds since 1970 as that clock counts them."""

    @property
    def every_hour(self) -> bool: ...

    def local_spans(self, lo: int, hi: int) -> Spans:
        """The times in [lo, hi), ascending."""


class DayRule(NamedTuple):
    """Which days of a month match, given the length of the month and its first weekday."""

    days: tuple[int, ...]
    last_day: bool
    weekdays: tuple[int, ...]
    nth_weekdays: tuple[tuple[int, int], ...]
    either: bool
    """Both day fields are restricted: a day that matches one of them matches."""


@dataclass(frozen=True, slots=True)
class CronExpression:
    """`second minute hour day-of-month month day-of-week`."""

    normalised: str
    in_hour: tuple[int, ...]
    """Minutes and seconds, as seconds of an hour."""
    hours: tuple[int, ...]
    months: tuple[int, ...]
    days: DayRule

    @staticmethod
    def parse(text: str) -> CronExpression:
        return _parse(text)

    @property
    def every_hour(self) -> bool:
        return len(self.hours) == 24

    def next_after(self, t_us: int, zone: ZoneInfo) -> int | None:
        return first_firing(firing_spans(self, t_us, t_us + HORIZON_US, zone))

    def between(self, start_us: int, end_us: int, zone: ZoneInfo) -> Iterator[int]:
        """Every firing in (start_us, end_us], ascending."""
        return firings_of(firing_spans(self, start_us, end_us, zone))

    def local_spans(self, lo: int, hi: int) -> Spans:
        in_hour = self.in_hour
        for day in self._local_days(lo // DAY, (hi - 1) // DAY):
            midnight = day * DAY
            for hour in self.hours[bisect_left(self.hours, (lo - midnight) // HOUR) :]:
                base = midnight + hour * HOUR
                if lo <= base and base + HOUR <= hi:
                    yield base, in_hour
                elif base < hi:
                    cut = slice(bisect_left(in_hour, lo - base), bisect_left(in_hour, hi - base))
                    if part := in_hour[cut]:
                        yield base, part
                else:
                    return

    def _local_days(self, first: int, last: int) -> Iterator[int]:
        """The matching days in [first, last], counted from 1970."""
        start = date.fromordinal(EPOCH + first)
        year, month = start.year, start.month
        while (begin := date(year, month, 1).toordinal() - EPOCH) <= last:
            following = (year, month + 1) if month < 12 else (year + 1, 1)
            if month in self.months:
                length = date(*following, 1).toordinal() - EPOCH - begin
                days = _matching_days(self.days, length, (begin + EPOCH) % 7)
                for day in days[bisect_left(days, first - begin) :]:
                    if begin + day > last:
                        return
                    yield begin + day
            year, month = following


def first_firing(spans: Spans) -> int | None:
    return next(((base + offsets[0]) * SECOND_US for base, offsets in spans), None)


def firings_of(spans: Spans) -> Iterator[int]:
    for base, offsets in spans:
        yield from [(base + offset) * SECOND_US for offset in offsets]


def firing_spans(times: LocalTimes, start_us: int, end_us: int, zone: ZoneInfo) -> Spans:
    """The firings of wall-clock times in (start_us, end_us], in seconds of UTC."""
    lo = max(start_us // SECOND_US + 1, 0)
    hi = min(end_us // SECOND_US + 1, END_OF_TIME)
    if lo >= hi:
        return
    once = not times.every_hour
    # The latest time that the wall clock has shown or passed. No clock was ever set back by more
    # than a day, so it is known when the search begins two days before the start.
    shown: int | None = None
    for begin, end, offset in _segments(zone, lo - 2 * DAY, hi):
        local = max(begin, lo) + offset
        if once:
            if shown is not None:
                skipped = shown < begin + offset
                if skipped and begin >= lo and any(times.local_spans(shown, begin + offset)):
                    yield begin, (0,)
                    local += 1  # a match at the first moment after the gap is the same firing
                local = max(local, shown)
            shown = end + offset if shown is None else max(shown, end + offset)
        if local < end + offset:
            for base, offsets in times.local_spans(local, end + offset):
                yield base - offset, offsets


def _segments(zone: ZoneInfo, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
    """The segments (begin, end, offset) of constant offset from UTC that cover [lo, hi)."""
    lo = max(lo, 0)
    for year in range(_year_of(lo), _year_of(hi - 1) + 1):
        for begin, end, offset in _segments_of_year(zone, year):
            if begin < hi and end > lo:
                yield max(begin, lo), min(end, hi), offset


@lru_cache(maxsize=8192)
def _segments_of_year(zone: ZoneInfo, year: int) -> tuple[tuple[int, int, int], ...]:
    # zoneinfo does not list its transitions: compare offsets three days apart and bisect.
    begin, end = _new_year(year), _new_year(year + 1)
    segments: list[tuple[int, int, int]] = []
    low, offset = begin, _offset(zone, begin)
    while low < end - 1:
        high = min(low + PROBE, end - 1)
        if (new := _offset(zone, high)) != offset:
            while high - low > 1:
                middle = (low + high) // 2
                if _offset(zone, middle) == offset:
                    low = middle
                else:
                    high = middle
            segments.append((begin, high, offset))
            begin, offset = high, new
        low = high
    return (*segments, (begin, end, offset))


def _offset(zone: ZoneInfo, at: int) -> int:
    delta = datetime.fromtimestamp(at, zone).utcoffset()
    return 0 if delta is None else delta.days * DAY + delta.seconds


def _new_year(year: int) -> int:
    return (date(year, 1, 1).toordinal() - EPOCH) * DAY


def _year_of(at: int) -> int:
    return date.fromordinal(EPOCH + at // DAY).year


@lru_cache(maxsize=1024)
def _times_in_hour(minutes: tuple[int, ...], seconds: tuple[int, ...]) -> tuple[int, ...]:
    # Cached, so that 100,000 jobs that fire every second share one tuple of 3,600 numbers.
    return tuple(minute * 60 + second for minute in minutes for second in seconds)


@lru_cache(maxsize=8192)
def _matching_days(rule: DayRule, length: int, first_weekday: int) -> tuple[int, ...]:
    """The matching days of a month, counted from 0; weekday 0 is Sunday."""
    found = []
    for day in range(length):
        weekday, nth = (first_weekday + day) % 7, day // 7 + 1
        by_day = day + 1 in rule.days or (rule.last_day and day + 1 == length)
        by_weekday = (
            weekday in rule.weekdays
            or (weekday, nth) in rule.nth_weekdays
            or ((weekday, LAST) in rule.nth_weekdays and day + 7 >= length)
        )
        if (by_day or by_weekday) if rule.either else (by_day and by_weekday):
            found.append(day)
    return tuple(found)


@lru_cache(maxsize=8192)
def _parse(text: str) -> CronExpression:
    fields = split_fields(text)
    seconds, minutes, hours, days, months, weekdays = itertools.starmap(
        read_field, enumerate(fields)
    )
    # As in Vixie cron, a day field that begins with a star only restricts the other one.
    either = fields[3][0] not in "*?" and fields[5][0] not in "*?"
    rule = DayRule(days.values, days.last_day, weekdays.values, weekdays.nth_weekdays, either)
    _check_that_it_fires(rule, months.values)
    in_hour = _times_in_hour(minutes.values, seconds.values)
    return CronExpression(" ".join(fields), in_hour, hours.values, months.values, rule)


def _check_that_it_fires(rule: DayRule, months: tuple[int, ...]) -> None:
    # Each month begins on each weekday in some year, February in both of its lengths.
    lengths = {length for month in months for length in _MONTH_LENGTHS[month]}
    if any(_matching_days(rule, length, weekday) for length in lengths for weekday in range(7)):
        return
    if rule.days and min(rule.days) > max(lengths):
        reason = f"it would never fire, no chosen month has a day {min(rule.days)}"
        raise BadCron("day-of-month", reason=reason)
    reason = "it would never fire, none of the chosen days is ever such a weekday"
    raise BadCron("day-of-week", reason=reason)
