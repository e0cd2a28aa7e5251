"""Templates: refusals name the position, and no value changes the structure of what is rendered."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from drumline.domain.jobs.template import (
    SLOT_NAMES,
    BadTemplate,
    MissingValue,
    SlotValues,
    Template,
    TemplateContext,
    looks_like_json,
    parse_template,
    parse_url,
)

VALUES: SlotValues = {
    "run_id": 42,
    "job_id": 7,
    "scheduled_time": "2026-01-02T03:04:05Z",
    "attempt": 1,
    "callback_url": "https://d.example/api/v1/callbacks/42?a=b&c=d",
    "callback_token": 'tök"en\\\r\n/../x',
}
NASTY = st.text() | st.sampled_from(
    ['"', "\\", '\\"', "\r\nX-Evil: 1", "/../..", "?a=b#c", "&x=1", "\x00", "{{run_id}}", "]]>"]
)
VALUE = NASTY | st.integers() | st.none()
ALL_VALUES = st.fixed_dictionaries(dict.fromkeys(SLOT_NAMES, VALUE))
SLOT = st.sampled_from([*("{{" + name + "}}" for name in SLOT_NAMES), "{{ run_id }}"])


def rendered(text: str, context: TemplateContext, values: SlotValues = VALUES) -> str:
    return parse_template(text, context, "body").render(values)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "why"),
    [
        ("{{nope}}", 1, 1, "'nope' is not a known name"),
        ('{"a": "{{run_id}}",\n "b": "{{ runid }}"}', 2, 8, "'runid' is not a known name"),
        ("x {{}}", 1, 3, "'' is not a known name"),
        ("x {{run_id", 1, 3, "not closed"),
        ("x {{run_id}", 1, 3, "not closed"),
        ("{{{run_id}}}", 1, 1, "'{run_id' is not a known name"),
        ("{{RUN_ID}}", 1, 1, "'RUN_ID' is not a known name"),
        ("{{run_id.__class__}}", 1, 1, "not a known name"),
        ("ab\ud800", 1, 3, "half a surrogate pair"),
    ],
)
def test_an_invalid_template_is_refused_with_its_position(
    text: str, line: int, column: int, why: str
) -> None:
    for context in TemplateContext:
        with pytest.raises(BadTemplate) as caught:
            parse_template(text, context, "body")
        assert caught.value.details["field"] == "body"
        assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)
        assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ('{"a": }', 7),
        ('{"a": {{run_id}} }x', 19),
        ('{"a": 1{{run_id}}}', 8),  # it would become 142, or 1null
        ('{"a": -{{run_id}}}', 7),
        ('{"a": {{run_id}}{{job_id}}}', 17),
        ('{{{{"a": 1}', 2),  # a literal {{ is not JSON
        ('{"a": "\\{{run_id}}"}', 8),  # the first letter of the value would be escaped
        ('{"a": "\\u00{{run_id}}"}', 9),
        ('["{{run_id}}", {{job_id}} 1]', 27),
        ('{"a": NaN}', 1),
        ("[" * 100_000, 1),
        ('{"a": "{{run_id}}}', 7),  # the string is not closed
    ],
)
def test_a_body_that_would_not_be_json_is_refused(text: str, column: int) -> None:
    with pytest.raises(BadTemplate, match="this is not JSON") as caught:
        parse_template(text, TemplateContext.JSON, "body")
    assert caught.value.details["column"] == column
    assert not looks_like_json(text)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://{{run_id}}/", "is allowed in the path and the query only"),
        ("http://a.{{run_id}}.example/", "is allowed in the path and the query only"),
        ("http://example:{{run_id}}/", "is allowed in the path and the query only"),
        ("{{callback_url}}", "is allowed in the path and the query only"),
        ("{{run_id}}://example/", "is allowed in the path and the query only"),
        ("http://{{callback_token}}@example/", "is allowed in the path and the query only"),
        ("http://exa{{{{mple/", "a host cannot contain {{"),
        ("http:/example/", "must begin with http://"),
        ("http:///path", "must begin with http://"),
        ("/path", "must begin with http://"),
        ("", "must begin with http://"),
        ("http://example\\@evil/", "cannot contain this character"),
        ("http://example/a\r\nHost: evil", "cannot contain this character"),
        ("http://example/#{{run_id}}", "fragment"),
        ("http://example/{{unknown}}", "is not a known name"),
    ],
)
def test_a_url_whose_target_is_not_fixed_is_refused(url: str, why: str) -> None:
    with pytest.raises(BadTemplate, match="url is wrong") as caught:
        parse_url(url, "url")
    assert why in str(caught.value)


@pytest.mark.parametrize("text", ["a\r\nX-Evil: 1", "a\nb", "a\x00", "a\x7f"])
def test_a_header_with_a_line_break_is_refused(text: str) -> None:
    with pytest.raises(BadTemplate, match="control character"):
        parse_template(text, TemplateContext.HEADER, "headers.X-A")


# --- rendering ------------------------------------------------------------------------------------


def test_values_are_encoded_for_their_context() -> None:
    token = VALUES["callback_token"]
    assert rendered("{{callback_token}} {{run_id}}", TemplateContext.TEXT) == f"{token} 42"
    assert (
        rendered("t={{callback_token}}", TemplateContext.FORM)
        == "t=t%C3%B6k%22en%5C%0D%0A%2F..%2Fx"
    )
    assert rendered("T {{callback_token}}", TemplateContext.HEADER) == 'T t%C3%B6k"en\\%0D%0A/../x'
    assert rendered("T {{callback_url}}", TemplateContext.HEADER) == f"T {VALUES['callback_url']}"
    text = '{"id": {{run_id}}, "t": "<{{callback_token}}>", "bare": {{callback_token}}}'
    assert json.loads(rendered(text, TemplateContext.JSON)) == {
        "id": 42,
        "t": f"<{token}>",
        "bare": token,
    }
    path = parse_url("http://h/a/{{callback_token}}/b?u={{callback_url}}&t=x", "url").path
    assert path.render(VALUES) == (
        "/a/t%C3%B6k%22en%5C%0D%0A%2F..%2Fx/b"
        "?u=https%3A%2F%2Fd.example%2Fapi%2Fv1%2Fcallbacks%2F42%3Fa%3Db%26c%3Dd&t=x"
    )


def test_a_missing_value_is_null_or_empty_and_refused_in_a_path() -> None:
    values = {**VALUES, "job_id": None}
    assert rendered('[{{job_id}}, "{{job_id}}"]', TemplateContext.JSON, values) == '[null, ""]'
    assert rendered("job={{job_id}}", TemplateContext.TEXT, values) == "job="
    assert parse_url("http://h/?job={{job_id}}", "url").path.render(values) == "/?job="
    for value in (None, "", ".", "..", "..."):
        with pytest.raises(MissingValue, match="url needs job_id"):
            parse_url("http://h/jobs/{{job_id}}", "url").path.render({**VALUES, "job_id": value})


def test_four_braces_are_two_literal_ones() -> None:
    assert rendered("{{{{run_id}} {{run_id}}", TemplateContext.TEXT) == "{{run_id}} 42"
    assert rendered('{"a": "{{{{x}}"}', TemplateContext.JSON) == '{"a": "{{x}}"}'
    assert rendered('{"a":{"b":{"c":{{run_id}}}}}', TemplateContext.JSON) == '{"a":{"b":{"c":42}}}'
    assert rendered("}} }", TemplateContext.TEXT) == "}} }"


def test_a_template_without_slots_is_a_constant() -> None:
    template = parse_template("nothing here", TemplateContext.TEXT, "body")
    assert template == Template(("nothing here",))
    assert template.render({}) == "nothing here"
    assert parse_template("", TemplateContext.TEXT, "body").render({}) == ""


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("http://h", "http://h", "/"),
        ("http://h?a=b", "http://h", "/?a=b"),
        (
            "HTTP://H:80/ä b/%2F%zz?q=ü&x={}",
            "HTTP://H:80",
            "/%C3%A4%20b/%2F%25zz?q=%C3%BC&x=%7B%7D",
        ),
        ("https://h/a//b/../c?x?y=/", "https://h", "/a//b/../c?x?y=/"),
    ],
)
def test_the_literal_part_of_a_url_is_quoted_once(url: str, origin: str, path: str) -> None:
    parsed = parse_url(url, "url")
    assert (parsed.origin, parsed.path.render({})) == (origin, path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": "{{run_id}}"}', True),
        (" [1]", True),
        ("[run {{run_id}}] hello", False),
        ("{{run_id}}", False),  # a number by chance
        ("42", False),
        ("", False),
    ],
)
def test_json_objects_and_arrays_are_recognised(text: str, expected: bool) -> None:
    assert looks_like_json(text) is expected


# --- generated values -----------------------------------------------------------------------------

DOCUMENT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | SLOT | st.just("\0bare"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | SLOT, inner),
    max_leaves=8,
)


@given(DOCUMENT, ALL_VALUES, st.booleans())
def test_rendered_json_always_parses(
    document: object, values: SlotValues, ascii_only: bool
) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only)
    text = text.replace(json.dumps("\0bare", ensure_ascii=ascii_only), "{{callback_token}}")
    try:
        template = parse_template(text, TemplateContext.JSON, "body")
    except BadTemplate:
        assume(False)
    json.loads(template.render(values))


@given(st.lists(st.text() | SLOT | st.sampled_from(list('{}[]",:\\u0 1e-')), max_size=12))
def test_every_accepted_json_template_renders_as_json(parts: list[str]) -> None:
    try:
        template = parse_template("".join(parts), TemplateContext.JSON, "body")
    except BadTemplate:
        return
    for value in ("", '"', "\\", "é😀", 0, -1, None, "x" * 70, "\x00\x1f\u2028"):
        json.loads(template.render(dict.fromkeys(SLOT_NAMES, value)))


@given(ALL_VALUES)
def test_values_are_unchanged_after_parsing_json(values: SlotValues) -> None:
    for name, value in values.items():
        assert json.loads(rendered("[{{" + name + "}}]", TemplateContext.JSON, values)) == [value]
        text = "" if value is None else str(value)
        assert json.loads(rendered('["{{' + name + '}}"]', TemplateContext.JSON, values)) == [text]


@given(st.lists(SLOT | st.text("abc :;=", max_size=5), max_size=6), ALL_VALUES)
@example(["{{run_id}}"], dict.fromkeys(SLOT_NAMES, "\r\nX-Evil: 1"))
def test_no_value_starts_another_header(parts: list[str], values: SlotValues) -> None:
    line = rendered("".join(parts), TemplateContext.HEADER, values)
    assert all(" " <= letter <= "~" for letter in line)


@given(
    st.lists(SLOT | st.sampled_from(["/", "a", "=", "&", "?", ".", "%41", ":", "@", "//"])),
    st.fixed_dictionaries(dict.fromkeys(SLOT_NAMES, NASTY)),
)
@example(["{{run_id}}", "?", "a=", "{{run_id}}"], dict.fromkeys(SLOT_NAMES, "/../?#&="))
@example(["?", "{{run_id}}"], dict.fromkeys(SLOT_NAMES, ""))
def test_no_value_changes_the_structure_of_a_url(parts: list[str], values: SlotValues) -> None:
    template = parse_url("http://host.example:81/" + "".join(parts), "url")
    plain = urlsplit(template.origin + template.path.render(dict.fromkeys(SLOT_NAMES, "v")))
    try:
        text = template.origin + template.path.render(values)
    except MissingValue:
        assert any(not str(value).strip(".") for value in values.values())
        return
    url = urlsplit(text)
    assert text.isascii()
    assert (url.scheme, url.netloc, url.fragment) == ("http", "host.example:81", "")
    assert url.path.count("/") == plain.path.count("/")
    dots = [part for part in plain.path.split("/") if part in (".", "..")]
    assert [part for part in unquote_dots(url.path) if part in (".", "..")] == dots
    assert re.sub("[^&=]", "", url.query) == re.sub("[^&=]", "", plain.query)


def unquote_dots(path: str) -> list[str]:
    return [unquote(part) for part in path.split("/")]


@given(st.fixed_dictionaries(dict.fromkeys(SLOT_NAMES, NASTY)))
def test_values_are_unchanged_after_parsing_a_form_and_xml(values: SlotValues) -> None:
    form = rendered("a={{run_id}}&b={{job_id}}", TemplateContext.FORM, values)
    assert parse_qsl(form, keep_blank_values=True) == [
        ("a", values["run_id"]),
        ("b", values["job_id"]),
    ]
    element = ElementTree.fromstring(  # noqa: S314  # our own text
        rendered('<a b="{{run_id}}">{{job_id}}</a>', TemplateContext.XML, values)
    )
    assert list(element) == []
    assert element.keys() == ["b"]
