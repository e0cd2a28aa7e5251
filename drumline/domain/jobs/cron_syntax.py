"""Cron expressions as text: checked field by field, then parsed by croniter.

croniter returns the values of each field, including `L` and `#`. Each field is checked first: a
refusal names the field and the reason, and expressions that croniter interprets differently from
cron (`5-5` as all values, `22-2` across midnight, `R` as a random number) are refused or rewritten.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from drumline.errors import WrongUse

MAX_LENGTH = 64
LAST = -1
"""In place of a week of the month: the last."""


class BadSchedule(WrongUse):
    """{field} is wrong: {reason}"""


class BadCron(BadSchedule):
    """The {cron_field} field of the cron expression is wrong: {reason}"""

    def __init__(self, cron_field: str, reason: str) -> None:
        super().__init__(field="cron_expr", cron_field=cron_field, reason=reason)


class FieldValues(NamedTuple):
    """What one field allows."""

    values: tuple[int, ...]
    last_day: bool = False
    """`L` in the day-of-month field."""
    nth_weekdays: tuple[tuple[int, int], ...] = ()
    """`FRI#2` as (5, 2) and `L5` as (5, LAST); then there are no other weekdays."""


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    size: int
    names: tuple[str, ...] = ()
    hint: str = ""


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS = (
    _Field("second", 0, 59, 60),
    _Field("minute", 0, 59, 60),
    _Field("hour", 0, 23, 24),
    _Field("day-of-month", 1, 31, 31, (), "; L alone, or as the end of a range, is the last day"),
    _Field("month", 1, 12, 12, _MONTHS),
    _Field("day-of-week", 0, 7, 7, _WEEKDAYS, "; FRI#2 is the second Friday, L5 the last"),
)
_DAY_OF_MONTH, _DAY_OF_WEEK = _FIELDS[3], _FIELDS[5]
_ITEM = re.compile(r"(?:(?P<all>[*?])|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\w+))?")
_NTH_WEEKDAY = re.compile(r"(?P<weekday>\w+)#(?P<nth>\w+)")
_LAST_WEEKDAY = re.compile(r"L(?P<weekday>\d+)", re.ASCII)


def split_fields(text: str) -> list[str]:
    """The six fields in upper case, of an expression that is no longer than MAX_LENGTH."""
    fields = text.upper().split()
    if len(fields) == 5:
        fields.insert(0, "0")
    if len(" ".join(fields)) > MAX_LENGTH:
        reason = f"with the seconds field it is longer than {MAX_LENGTH} characters"
        raise BadSchedule(field="cron_expr", reason=reason)
    if len(fields) != len(_FIELDS):
        names = "[second] minute hour day-of-month month day-of-week"
        reason = f"it must have 5 or 6 fields ({names}), not {len(fields)}"
        raise BadSchedule(field="cron_expr", reason=reason)
    return fields


@lru_cache(maxsize=8192)
def read_field(index: int, text: str) -> FieldValues:
    """Parse one of the six fields. Cached by field: fields repeat more often than expressions."""
    # Imported with the first expression: the import takes 60 to 110 ms, mostly for dateutil, and
    # only the gateway and the ticker parse expressions.
    from croniter import CroniterError, croniter

    field = _FIELDS[index]
    items = text.split(",")
    nth = [field is _DAY_OF_WEEK and _is_nth_weekday(item) for item in items]
    if any(nth) and not all(nth):  # croniter refuses most of these, and reads `*,FRI#2` as FRI#2
        reason = "FRI#2 or L5 cannot be in one list with other weekdays"
        raise BadCron(field.name, reason=reason)
    check = _check_nth_weekday if any(nth) else _check_item
    fields = ["*"] * len(_FIELDS)
    fields[index] = ",".join(check(field, item) for item in items)
    try:
        expanded, weekdays = croniter.expand(" ".join(fields), second_at_beginning=True)
    except CroniterError:
        raise BadCron(field.name, reason=f"{text!r} is not valid") from None
    if weekdays:
        pairs = {
            (int(weekday), nth if isinstance(nth, int) else LAST)  # "l" is the last
            for weekday, numbers in weekdays.items()
            for nth in numbers
        }
        return FieldValues((), nth_weekdays=tuple(sorted(pairs)))
    values = set(expanded[index - 1])  # croniter has the seconds last
    if "*" in values:
        return FieldValues(tuple(range(field.low, field.low + field.size)))
    numbers = tuple(sorted(value for value in values if isinstance(value, int)))
    return FieldValues(numbers, last_day="l" in values)


def _is_nth_weekday(item: str) -> bool:
    return "#" in item or _LAST_WEEKDAY.fullmatch(item) is not None


def _check_nth_weekday(field: _Field, item: str) -> str:
    match = _LAST_WEEKDAY.fullmatch(item) or _NTH_WEEKDAY.fullmatch(item)
    if match is None:
        raise BadCron(field.name, reason=f"{item!r} is not a weekday and its number")
    _check_value(field, match["weekday"])
    if "#" in item and not 1 <= (nth := _check_number(field, match["nth"])) <= 5:
        raise BadCron(field.name, reason=f"{nth} is not between 1 and 5")
    return item


def _check_item(field: _Field, item: str) -> str:
    """Check an item and return it as croniter has to be given it."""
    if field is _DAY_OF_MONTH and item == "L":
        return item
    match = _ITEM.fullmatch(item)
    if match is None:
        raise BadCron(field.name, reason=f"{item!r} is not a value, a range or a step")
    if match["step"] is not None:
        step = _check_number(field, match["step"])
        if not 1 <= step <= field.size:  # croniter reads */90 as every 60 minutes
            reason = f"the step {step} is not between 1 and {field.size}"
            raise BadCron(field.name, reason=reason)
    if match["all"]:
        return item.replace("?", "*")  # croniter accepts ? in the day fields only
    first = _check_value(field, match["first"])
    if match["last"] is None:
        if match["step"] and field is _DAY_OF_WEEK and first == 7:
            raise BadCron(field.name, reason=f"{item!r} ends before it begins")
        return item
    last = _check_range_end(field, match["last"])
    if last < first:
        raise BadCron(field.name, reason=f"{item!r} ends before it begins")
    return match["first"] if first == last else item  # croniter reads 5-5 as all values


def _check_range_end(field: _Field, text: str) -> int:
    if field is _DAY_OF_WEEK and text == "SUN":
        return 7  # SAT-SUN
    if field is _DAY_OF_MONTH and text == "L":
        return field.high
    return _check_value(field, text)


def _check_value(field: _Field, text: str) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    known = f" or one of {' '.join(field.names)}" if field.names else ""
    value = _check_number(field, text, known + field.hint)
    if not field.low <= value <= field.high:
        reason = f"{value} is not between {field.low} and {field.high}"
        raise BadCron(field.name, reason=reason)
    return value


def _check_number(field: _Field, text: str, otherwise: str = "") -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadCron(field.name, reason=f"{text!r} is not a number{otherwise}")
    return int(text)
