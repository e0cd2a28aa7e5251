"""The schema check refuses exactly the parameters that the handler's type would refuse."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from drumline.command_layer.param_schema import require
from drumline.errors import WrongUse


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    a: int
    b: str | None = None


class Outer(msgspec.Struct):
    a: Inner | None
    b: dict[str, int] = {}
    c: tuple[int, str] = (1, "")


TYPES = [
    int,
    float,
    bool,
    str,
    int | None,
    list[int],
    dict[str, float],
    tuple[int, str],
    Literal["a", "b"],
    Annotated[int, Meta(ge=0, lt=3)],
    Annotated[float, Meta(gt=0, le=2)],
    Annotated[str, Meta(min_length=1, max_length=2)],
    Annotated[str, Meta(pattern="^a")],
    Annotated[list[str], Meta(min_length=1, max_length=2)],
    Inner,
    Outer,
    list[Inner | None],
]

scalars = st.none() | st.booleans() | st.integers(-3, 4) | st.sampled_from([0.0, 0.5, 1.0, 2.5])
words = st.sampled_from(["", "a", "b", "ab", "abc"])
values = st.recursive(
    scalars | words,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def accepted_by_type(value: Any, kind: Any) -> bool:
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except msgspec.ValidationError:
        return False
    return True


@given(st.sampled_from(TYPES), values)
def test_the_schema_check_agrees_with_the_type(kind: Any, value: Any) -> None:
    schema = msgspec.json.schema(kind)
    try:
        require(schema, value)
    except WrongUse as error:
        assert not accepted_by_type(value, kind), (schema, error)
    else:
        assert accepted_by_type(value, kind), schema


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Inner, {}, "param.a: is missing"),
        (Inner, {"a": "1"}, "param.a: must be of type integer, not string"),
        (Inner, {"a": 1, "c": 1}, "param.c: is not known; known: a, b"),
        (Outer, {"a": None, "b": {"x": 0.5}}, "param.b.x: must be of type integer, not number"),
        (list[Inner], [{"a": 1}, {"a": True}], "param[1].a: must be of type integer, not boolean"),
        (Literal["a", "b"], "c", "param: must be one of 'a', 'b', not 'c'"),
        (Annotated[int, Meta(ge=1)], 0, "param: must be >= 1, not 0"),
        (Annotated[str, Meta(max_length=1)], "ab", "param: has 2 characters, not 0 to 1"),
    ],
)
def test_the_wrong_field_is_named(kind: Any, value: Any, words: str) -> None:
    with pytest.raises(WrongUse) as raised:
        require(msgspec.json.schema(kind), value)
    assert str(raised.value) == words


def test_a_handler_without_a_schema_accepts_any_parameter() -> None:
    require(None, {"any": ["thing"]})


Setting = Annotated[
    dict[str, str],
    Meta(extra_json_schema={"patternProperties": {"password": {"pattern": "^[$]"}}}),
]


class Wide(msgspec.Struct, forbid_unknown_fields=True):
    a: int | None = None
    set: Setting | None = None


Either = Annotated[
    Wide, Meta(extra_json_schema={"anyOf": [{"required": ["a"]}, {"required": ["set", "b"]}]})
]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1}, None),
        ({"a": 1, "set": {"password": "${file:x}", "host": "db"}}, None),
        ({"a": 1, "set": {"password": "hunter2"}}, "param.set.password: does not match: '^[$]'"),
        ({"a": 1, "set": {"host": 1}}, "param.set.host: must be of type string, not integer"),
        ({"a": "x"}, "param.a: must be of type integer, not string"),
        ({}, "param: needs one of a, set and b"),
        ({"set": {}}, "param: needs one of a, set and b"),
        (None, "param: must be of type object, not null"),
    ],
)
def test_the_extra_schema_of_a_handler_is_checked(value: Any, words: str | None) -> None:
    schema = msgspec.json.schema(Either)
    if words is None:
        require(schema, value)
        return
    with pytest.raises(WrongUse) as raised:
        require(schema, value)
    assert str(raised.value) == words
    assert "hunter2" not in words
