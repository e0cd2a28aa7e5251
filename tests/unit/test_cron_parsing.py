"""Parsing of cron expressions: normalised, or refused with the field that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.domain.jobs.cron import CronExpression
from drumline.domain.jobs.cron_syntax import BadCron, BadSchedule, read_field
from drumline.errors import WrongUse
from tests.unit.cron_cases import Field, fields, us


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("*/15 * * * * *", "*/15 * * * * *"),
        ("*/5 * * * *", "0 */5 * * * *"),
        ("  0\t12  ? *  mon-fri ", "0 0 12 ? * MON-FRI"),
        ("0 0 1 jan,Jul *", "0 0 0 1 JAN,JUL *"),
        ("0 0 15,l * fri#2", "0 0 0 15,L * FRI#2"),
        ("0 0 * * l5", "0 0 0 * * L5"),
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
        ("0 L * * *", "hour", "'L' is not a number"),
        ("0 0 L-3 * *", "day-of-month", "'L' is not a number; L alone, or as the end of a range"),
        ("0 0 L/2 * *", "day-of-month", "'L' is not a number"),
        ("0 0 LW * *", "day-of-month", "'LW' is not a number"),
        ("0 0 15W * *", "day-of-month", "'15W' is not a number"),
        ("0 0 * L *", "month", "'L' is not a number or one of JAN FEB"),
        ("0 0 * * L", "day-of-week", "L5 the last"),
        ("0 0 * * 5L", "day-of-week", "'5L' is not a number or one of SUN"),
        ("0 0 * * L8", "day-of-week", "8 is not between 0 and 7"),
        ("0 0 * * 5#0", "day-of-week", "0 is not between 1 and 5"),
        ("0 0 * * FRI#6", "day-of-week", "6 is not between 1 and 5"),
        ("0 0 * * FRI#x", "day-of-week", "'X' is not a number"),
        ("0 0 * * FRI#", "day-of-week", "'FRI#' is not a weekday and its number"),
        ("0 0 * * MON-FRI#1", "day-of-week", "'MON-FRI#1' is not a weekday and its number"),
        ("0 0 * * 8#1", "day-of-week", "8 is not between 0 and 7"),
        ("0 0 * * L5#1", "day-of-week", "'L5' is not a number"),
        ("0 0 1#1 * *", "day-of-month", "'1#1' is not a value"),
        ("0 0 * * MON,FRI#2", "day-of-week", "cannot be in one list with other weekdays"),
        ("0 0 * * *,L5", "day-of-week", "cannot be in one list with other weekdays"),
        ("0 0 * * 0-6,FRI#2", "day-of-week", "cannot be in one list with other weekdays"),
        # For croniter a hash or a random number.
        ("H * * * *", "minute", "'H' is not a number"),
        ("R * * * *", "minute", "'R' is not a number"),
        ("0 H/2 * * *", "hour", "'H' is not a number"),
        ("0 0 R(1-7) * *", "day-of-month", "'R(1-7)' is not a value"),
        ("٣ * * * *", "minute", "'٣' is not a number"),
        ("0 0 31 2 *", "day-of-month", "never fire, no chosen month has a day 31"),
        ("0 0 30 2 ?", "day-of-month", "never fire"),
        ("0 0 31 4,6,9,11 *", "day-of-month", "never fire"),
        ("0 0 30-31 FEB */2", "day-of-month", "never fire, no chosen month has a day 30"),
        ("0 0 */31 * FRI#2", "day-of-week", "never fire, none of the chosen days is ever such"),
        ("0 0 */31 * L1", "day-of-week", "never fire"),
    ],
)
def test_a_refusal_names_the_field(text: str, field: str, why: str) -> None:
    with pytest.raises(BadCron) as caught:
        CronExpression.parse(text)
    assert caught.value.details["cron_field"] == field
    assert f"The {field} field of the cron expression is wrong" in str(caught.value)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "5 or 6 fields"),
        ("* * * *", "not 4"),
        ("* * * * * * *", "not 7"),
        ("@hourly", "not 1"),
        ("0 0 0 1 1 * 2030", "not 7"),  # croniter reads the seventh as years
        ("0 0 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23 * * *", "64"),
    ],
)
def test_an_expression_with_the_wrong_shape_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadSchedule, match=why) as caught:
        CronExpression.parse(text)
    assert caught.value.details["field"] == "cron_expr"
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
@settings(max_examples=300)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        cron = CronExpression.parse(text)
    except BadSchedule as error:
        assert error.details["field"]
    else:
        assert cron.next_after(us("2024-01-01"), ZoneInfo("UTC")) is not None


def every_item(low: int, high: int) -> Iterator[Field]:
    """Every spelling of an item of a field, with its values, computed without a parser."""
    size = high - low + 1
    for first in range(low, high + 1):
        yield Field(f"{first}", frozenset({first}))
        for step in range(1, size + 1):
            yield Field(f"{first}/{step}", frozenset(range(first, high + 1, step)))
        for last in range(first, high + 1):
            yield Field(f"{first}-{last}", frozenset(range(first, last + 1)))
            for step in range(1, size + 1):
                yield Field(f"{first}-{last}/{step}", frozenset(range(first, last + 1, step)))
    for step in range(1, size + 1):
        yield Field(f"*/{step}", frozenset(range(low, high + 1, step)))
        yield Field(f"?/{step}", frozenset(range(low, high + 1, step)))


@pytest.mark.parametrize(("index", "low", "high"), [(2, 0, 23), (3, 1, 31), (4, 1, 12), (5, 0, 6)])
def test_croniter_reads_every_item_as_cron_does(index: int, low: int, high: int) -> None:
    """Every item of the four small fields."""
    for item in every_item(low, high):
        assert frozenset(read_field(index, item.text).values) == item.values, item.text


@pytest.mark.parametrize("index", [0, 1])
@given(field=fields(0, 59))
@settings(max_examples=200)
def test_croniter_reads_seconds_and_minutes_as_cron_does(index: int, field: Field) -> None:
    assert frozenset(read_field(index, field.text).values) == field.values


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("step", range(1, 8))
def test_a_range_of_weekdays_may_end_on_7(first: int, step: int) -> None:
    expected = {day % 7 for day in range(first, 8, step)}
    assert set(read_field(5, f"{first}-7/{step}").values) == expected
    assert set(read_field(5, f"{first}-SUN/{step}").values) == expected
