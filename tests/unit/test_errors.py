"""Errors carry data, also over the control socket."""

import msgspec
import pytest

from drumline.client.control import ControlReply, encode, error_reply
from drumline.command_layer.fields import invalid_field
from drumline.domain.jobs.cron_syntax import BadCron
from drumline.errors import DrumlineError, NotFound, UnknownHandler, WrongUse, restore


def over_the_socket(error: DrumlineError) -> DrumlineError:
    """What the client raises when a command failed with this error."""
    reply = msgspec.msgpack.decode(encode(error_reply("1", error)), type=ControlReply)
    assert reply.error is not None
    return restore(reply.error, reply.message, reply.details)


@pytest.mark.parametrize(
    "error",
    [
        NotFound(noun="task", id=7),
        WrongUse(field="limit", reason="expected `int` >= 1"),
        WrongUse(field="param.n", reason="must be >= 1").within("target 3", index=3),
        UnknownHandler(type="x", target_type=None, known="a, b"),
    ],
)
def test_the_client_raises_the_same_error(error: DrumlineError) -> None:
    found = over_the_socket(error)
    assert type(found) is type(error)
    assert (str(found), found.details) == (str(error), error.details)


def test_a_class_that_the_client_may_lack_becomes_the_nearest_one_it_has() -> None:
    found = over_the_socket(BadCron("hour", "25 is not between 0 and 23"))
    assert type(found) is WrongUse
    assert found.details["field"] == "cron_expr" and found.details["cron_field"] == "hour"


def test_details_that_are_no_plain_data_travel_as_text() -> None:
    assert over_the_socket(NotFound(noun=WrongUse, id=1)).details["noun"] == str(WrongUse)


def test_a_place_precedes_the_field_in_the_message() -> None:
    error = WrongUse(field="param", reason="is missing").within("target 3", index=3)
    assert str(error) == "target 3: param: is missing"
    assert error.details == {"field": "param", "index": 3, "reason": "is missing"}


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    n: int


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    inner: Inner
    names: list[str] = []
    labels: dict[int, str] = {}


@pytest.mark.parametrize(
    ("value", "field", "reason"),
    [
        ({}, "inner", "required field is missing"),
        ({"inner": {}}, "inner.n", "required field is missing"),
        ({"inner": {"n": 1, "m": 2}}, "inner.m", "unknown field"),
        ({"inner": {"n": 1}, "m": 2}, "m", "unknown field"),
        ({"inner": {"n": "1"}}, "inner.n", "expected int, got str"),
        ({"inner": {"n": 1}, "names": ["a", 1]}, "names[1]", "expected str, got int"),
        ({"inner": {"n": 1}, "labels": {"a": "b"}}, "labels", "expected int, got str"),
        (3, None, "expected object, got int"),
    ],
)
def test_the_field_that_is_invalid_is_named(value: object, field: str | None, reason: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, Outer)
    found = invalid_field(caught.value)
    assert (found.get("field"), found["reason"]) == (field, reason)
