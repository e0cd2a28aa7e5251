"""Cron expressions, and the one rule for clock changes.

An expression describes times on a wall clock; a zone says when a wall clock shows them.

- **Chosen hours** (the hour field leaves out at least one hour, and all daily times): a local
  time fires once, at the first moment at which the wall clock reaches *or passes* it. So a time
  that a clock change skips fires at the first moment after the gap, and a time that occurs twice
  fires at its first occurrence. Firings that fall on one moment are one firing.
- **Every hour** (the hour field allows all 24): it fires whenever the wall clock shows a matching
  time. So `*/15 * * * *` goes on every 15 minutes through a repeated hour, and a skipped hour,
  which nobody lived through, adds nothing.

What fires depends on the set of times alone, never on how it was written: `0-23` is `*`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from drumline.errors import WrongUse

MAX_LENGTH = 64
SECOND_US = 1_000_000
HOUR, DAY = 3_600, 86_400
EPOCH = date(1970, 1, 1).toordinal()
END_OF_TIME = int(datetime(9000, 1, 1, tzinfo=UTC).timestamp())
HORIZON_US = 50 * 366 * DAY * SECOND_US
"""How far to look: 29 February on a given weekday can be 40 years away (2100 has none)."""

# Since 1970 no zone has changed its offset twice within 6.9 days (a test reads every zone).
PROBE = 3 * DAY

Spans = Iterator[tuple[int, Sequence[int]]]
"""Times in seconds, as a base and ascending offsets: an hour full of firings is one element."""


class BadSchedule(WrongUse):
    """{field} is wrong: {reason}"""

    @property
    def field(self) -> str:
        return str(self.details["field"])


class BadCron(BadSchedule):
    """The {field} field of the cron expression is wrong: {reason}"""


class LocalTimes(Protocol):
    """Times on a wall clock, in seconds since 1970 as that clock counts them."""

    @property
    def every_hour(self) -> bool: ...

    def local_spans(self, lo: int, hi: int) -> Spans:
        """The times in [lo, hi), ascending."""


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    size: int
    names: str = ""


_FIELDS = (
    _Field("second", 0, 59, 60),
    _Field("minute", 0, 59, 60),
    _Field("hour", 0, 23, 24),
    _Field("day-of-month", 1, 31, 31),
    _Field("month", 1, 12, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"),
    _Field("day-of-week", 0, 7, 7, "SUN MON TUE WED THU FRI SAT"),
)
_ITEM = re.compile(r"(?:(?P<all>[*?])|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\w+))?")
_LONGEST_MONTH = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """`second minute hour day-of-month month day-of-week`."""

    normalised: str
    in_hour: tuple[int, ...]
    """Minutes and seconds, as seconds of an hour."""
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    either_day: bool
    """Both day fields are restricted, so that a day need match only one of them."""

    @staticmethod
    def parse(text: str) -> CronExpression:
        return _parse(text)

    @property
    def every_hour(self) -> bool:
        return len(self.hours) == 24

    def next_after(self, t_us: int, zone: ZoneInfo) -> int | None:
        return first_firing(fire_spans(self, t_us, t_us + HORIZON_US, zone))

    def between(self, start_us: int, end_us: int, zone: ZoneInfo) -> Iterator[int]:
        """Every firing in (start_us, end_us], ascending."""
        return firings(fire_spans(self, start_us, end_us, zone))

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
        while date(year, month, 1).toordinal() - EPOCH <= last:
            if month in self.months:
                days = _days_in_month(self.days, self.weekdays, self.either_day, year, month)
                for day in days[bisect_left(days, first) :]:
                    if day > last:
                        return
                    yield day
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)


def first_firing(spans: Spans) -> int | None:
    return next(((base + offsets[0]) * SECOND_US for base, offsets in spans), None)


def firings(spans: Spans) -> Iterator[int]:
    for base, offsets in spans:
        yield from [(base + offset) * SECOND_US for offset in offsets]


def fire_spans(times: LocalTimes, start_us: int, end_us: int, zone: ZoneInfo) -> Spans:
    """When wall-clock times fire in (start_us, end_us], in seconds of UTC, by the rule above."""
    lo = max(start_us // SECOND_US + 1, 0)
    hi = min(end_us // SECOND_US + 1, END_OF_TIME)
    if lo >= hi:
        return
    once = not times.every_hour
    # The latest time that the wall clock has shown, or passed. No clock was ever set back by more
    # than a day, so two days before the start is early enough to know it.
    shown: int | None = None
    for begin, end, offset in _segments(zone, lo - 2 * DAY, hi):
        local = max(begin, lo) + offset
        if once:
            if shown is not None:
                skipped = shown < begin + offset
                if skipped and begin >= lo and any(times.local_spans(shown, begin + offset)):
                    yield begin, (0,)
                    local += 1  # what the clock shows at this moment is the same firing
                local = max(local, shown)
            shown = end + offset if shown is None else max(shown, end + offset)
        if local < end + offset:
            for base, offsets in times.local_spans(local, end + offset):
                yield base - offset, offsets


def _segments(zone: ZoneInfo, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
    """Stretches (begin, end, offset) of constant offset from UTC that together are [lo, hi)."""
    lo = max(lo, 0)
    for year in range(_year_of(lo), _year_of(hi - 1) + 1):
        for begin, end, offset in _segments_of_year(zone, year):
            if begin < hi and end > lo:
                yield max(begin, lo), min(end, hi), offset


@lru_cache(maxsize=8192)
def _segments_of_year(zone: ZoneInfo, year: int) -> tuple[tuple[int, int, int], ...]:
    # zoneinfo does not tell when it changes the offset, so ask it for offsets and bisect.
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
    # Cached, so that a hundred thousand jobs that fire every second share one tuple of 3,600.
    return tuple(minute * 60 + second for minute in minutes for second in seconds)


@lru_cache(maxsize=8192)
def _days_in_month(
    days: tuple[int, ...], weekdays: tuple[int, ...], either: bool, year: int, month: int
) -> tuple[int, ...]:
    start = date(year, month, 1).toordinal()
    after = date(year + month // 12, month % 12 + 1, 1).toordinal()
    found = []
    for ordinal in range(start, after):
        by_day, by_weekday = ordinal - start + 1 in days, ordinal % 7 in weekdays
        if (by_day or by_weekday) if either else (by_day and by_weekday):
            found.append(ordinal - EPOCH)
    return tuple(found)


@lru_cache(maxsize=8192)
def _parse(text: str) -> CronExpression:
    parts = text.upper().split()
    if len(parts) == 5:
        parts.insert(0, "0")
    normalised = " ".join(parts)
    if len(normalised) > MAX_LENGTH:
        reason = f"with its seconds it is longer than {MAX_LENGTH} characters"
        raise BadSchedule(field="cron_expr", reason=reason)
    if len(parts) != 6:
        names = "[second] minute hour day-of-month month day-of-week"
        reason = f"it needs 5 or 6 fields ({names}), not {len(parts)}"
        raise BadSchedule(field="cron_expr", reason=reason)
    seconds, minutes, hours, days, months, weekdays = map(_parse_field, _FIELDS, parts)
    # As in Vixie cron: a day field that begins with a star only narrows the other one down.
    either_day = parts[3][0] not in "*?" and parts[5][0] not in "*?"
    if not either_day and min(days) > max(_LONGEST_MONTH[month] for month in months):
        reason = f"it would never fire, no chosen month has a day {min(days)}"
        raise BadCron(field="day-of-month", reason=reason)
    weekdays = tuple(sorted({day % 7 for day in weekdays}))  # 7 is Sunday, too
    in_hour = _times_in_hour(minutes, seconds)
    return CronExpression(normalised, in_hour, hours, days, months, weekdays, either_day)


def _parse_field(field: _Field, text: str) -> tuple[int, ...]:
    return tuple(sorted({v for item in text.split(",") for v in _parse_item(field, item)}))


def _parse_item(field: _Field, item: str) -> range:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise BadCron(field=field.name, reason=f"{item!r} is not a value, a range or a step")
    low, high = field.low, field.high
    if field.name == "day-of-week" and not match["last"]:
        high = 6  # a star has seven days, and 7 is written only as a value or the end of a range
    if match["first"]:
        low = _parse_value(field, match["first"])
        if match["last"]:
            high = _parse_value(field, match["last"])
            if match["last"] == "SUN":
                high = 7  # SAT-SUN
        elif match["step"] is None:
            high = low
    if high < low:
        raise BadCron(field=field.name, reason=f"{item!r} ends before it begins")
    if match["step"] is None:
        return range(low, high + 1)
    step = _parse_number(field, match["step"])
    if not 1 <= step <= field.size:  # */90 would fire every 60 minutes: refuse what it cannot mean
        reason = f"the step {step} is not between 1 and {field.size}"
        raise BadCron(field=field.name, reason=reason)
    return range(low, high + 1, step)


def _parse_value(field: _Field, text: str) -> int:
    names = field.names.split()
    if text in names:
        return field.low + names.index(text)
    value = _parse_number(field, text)
    if not field.low <= value <= field.high:
        reason = f"{value} is not between {field.low} and {field.high}"
        raise BadCron(field=field.name, reason=reason)
    return value


def _parse_number(field: _Field, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        known = f" or one of {field.names}" if field.names else ""
        raise BadCron(field=field.name, reason=f"{text!r} is not a number{known}")
    return int(text)
