"""Cron expressions as they are read: written anew in one form, or refused by field."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.domain.jobs.cron import BadCron, BadSchedule, CronExpression
from drumline.errors import WrongUse
from tests.unit.cron_cases import us


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
