"""Strategies for cron expressions with their meaning, and times as text."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from hypothesis import assume
from hypothesis import strategies as st

US = 1_000_000


def us(text: str, zone: str = "UTC") -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone))
    return round(moment.timestamp()) * US


def shown(t_us: int, zone: str) -> str:
    return datetime.fromtimestamp(t_us // US, ZoneInfo(zone)).isoformat()


@dataclass(frozen=True)
class Field:
    """A field as text, with the values that it means, independent of any parser."""

    text: str
    values: frozenset[int]
    last_day: bool = False
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()
    """Pairs of a weekday and its number in the month; LAST for the last."""


LAST = -1


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
nth_weekday_fields = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([1, 2, 3, 4, 5, LAST])), min_size=1, max_size=3
).map(
    lambda pairs: Field(
        ",".join(f"L{day}" if nth == LAST else f"{day}#{nth}" for day, nth in pairs),
        frozenset(),
        nth_weekdays=frozenset(pairs),
    )
)
last_day_fields = st.sampled_from(
    [
        Field("L", frozenset(), last_day=True),
        Field("15,L", frozenset({15}), last_day=True),
        Field("L,1-3", frozenset({1, 2, 3}), last_day=True),
    ]
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

    @property
    def cronsim_text(self) -> str:
        """cronsim writes 5L for the last Friday."""
        return re.sub(r"L(\d)", r"\1L", self.text)

    def matches(self, local: datetime) -> bool:
        weekday, length = local.isoweekday() % 7, monthrange(local.year, local.month)[1]
        by_day = local.day in self.day.values or (self.day.last_day and local.day == length)
        by_weekday = (
            weekday in self.weekday.values
            or (weekday, (local.day - 1) // 7 + 1) in self.weekday.nth_weekdays
            or ((weekday, LAST) in self.weekday.nth_weekdays and local.day + 7 > length)
        )
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
