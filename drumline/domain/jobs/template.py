"""Templates: slots such as `{{run_id}}` in a URL, a header or a body.

A template is parsed once, when a call is created: an unknown name, or a slot whose value could
change the structure of the text (the host of a URL, half of a JSON escape), is refused with its
position. It is rendered for each run; values are encoded for their context, so that no value can
end a JSON string, a header line or a path segment. `{{{{` is a literal `{{`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, NoReturn
from urllib.parse import quote
from xml.sax.saxutils import escape

import msgspec

from drumline.errors import WrongUse

CALLBACK_URL = "callback_url"
CALLBACK_TOKEN = "callback_token"  # noqa: S105  # a name, no token
SLOT_NAMES = ("run_id", "job_id", "scheduled_time", "attempt", CALLBACK_URL, CALLBACK_TOKEN)

SlotValue = str | int | None
"""None: the run has no such value. It is rendered as `null` in JSON and as nothing elsewhere."""
SlotValues = Mapping[str, SlotValue]
Encoder = Callable[[SlotValue], str]


class TemplateContext(StrEnum):
    """What a template is part of: it determines how values are encoded."""

    HEADER = "header"
    JSON = "json"
    FORM = "form"
    XML = "xml"
    TEXT = "text"


class BadTemplate(WrongUse):
    """{field} is wrong: {reason} (line {line}, column {column})"""


class MissingValue(WrongUse):
    """{field} needs {name}, which is {value!r} in this run: the path would lose a segment"""


@dataclass(frozen=True, slots=True)
class Template:
    """Text with slots; a constant if it has none."""

    parts: tuple[str, ...]
    """Literals; an empty string for each slot."""
    slots: tuple[tuple[int, str, Encoder], ...] = ()
    """For each slot the index of its part, its name, and the encoder of its value."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for _, name, _ in self.slots)

    def render(self, values: SlotValues) -> str:
        if not self.slots:
            return self.parts[0]
        filled = list(self.parts)
        for index, name, encode in self.slots:
            filled[index] = encode(values[name])
        return "".join(filled)


class UrlTemplate(NamedTuple):
    """A URL: an origin that no run can change, and a template for the rest."""

    origin: str
    """Scheme and authority, as written."""
    path: Template
    """Path and query, quoted as they are sent."""


def parse_template(text: str, context: TemplateContext, field: str) -> Template:
    """Parse a template; errors name it `field`."""
    tokens = _tokens(text, field)
    if context is TemplateContext.JSON:
        return _template(tokens, _json_encoders(text, tokens, field))
    if context is TemplateContext.HEADER and (found := _CONTROL.search(text)):
        _refuse(text, found.start(), field, "a header cannot contain a control character")
    return _template(tokens, [_ENCODERS[context]] * len(tokens))


def parse_url(text: str, field: str) -> UrlTemplate:
    """Parse the template of a URL, which may have slots in its path and its query only."""
    tokens = _tokens(text, field)
    if found := _NOT_IN_URL.search(text):
        _refuse(text, found.start(), field, "a URL cannot contain this character")
    if "#" in text:
        _refuse(text, text.index("#"), field, "a fragment (#) is never sent")
    match = _ORIGIN.match(text)
    for token in tokens:
        if token.is_slot and (match is None or token.position < match.end()):
            reason = f"{{{{{token.text}}}}} is allowed in the path and the query only"
            _refuse(text, token.position, field, reason)
    if match is None or not match["authority"]:
        _refuse(text, 0, field, "a URL must begin with http:// or https:// and a host")
    if len(tokens[0].text) < match.end():
        _refuse(text, len(tokens[0].text), field, "a host cannot contain {{")
    tokens[0] = _Token(tokens[0].text[match.end() :], match.end(), False)
    encoders: list[Encoder] = []
    in_query = False
    for index, token in enumerate(tokens):
        encoders.append(_in_form if in_query else _in_path(token.text, field))
        if not token.is_slot:
            in_query = in_query or "?" in token.text
            quoted = _TO_QUOTE.sub(lambda found: quote(found[0], safe=""), token.text)
            tokens[index] = token._replace(text=quoted)
    if not tokens[0].text.startswith("/"):
        tokens[0] = tokens[0]._replace(text="/" + tokens[0].text)
    return UrlTemplate(match[0], _template(tokens, encoders))


def looks_like_json(text: str) -> bool:
    """Whether the text is a JSON object or array, whatever the values of its slots."""
    start = text.lstrip(" \t\r\n")
    if not start.startswith(("{", "[")) or start.startswith("{{"):
        return False
    try:
        parse_template(text, TemplateContext.JSON, "")
    except BadTemplate:
        return False
    return True


# --- tokens ---------------------------------------------------------------------------------------

_OPEN = re.compile(r"\{\{(?:\{\{|(?P<name>.*?)\}\})?", re.DOTALL)


class _Token(NamedTuple):
    text: str
    """A literal, or the name of a slot."""
    position: int
    is_slot: bool


def _tokens(text: str, field: str) -> list[_Token]:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # a lone surrogate, which JSON can express
        _refuse(text, error.start, field, "half a surrogate pair cannot be sent")
    return list(_split(text, field)) or [_Token("", 0, False)]


def _split(text: str, field: str) -> Iterator[_Token]:
    end = 0
    for match in _OPEN.finditer(text):
        start = match.start()
        if start > end:
            yield _Token(text[end:start], end, False)
        end = match.end()
        if match[0] == "{{{{":
            yield _Token("{{", start, False)
        elif match["name"] is None:
            _refuse(text, start, field, "{{ is not closed by }}")
        else:
            name = match["name"].strip()
            if name not in SLOT_NAMES:
                shown = repr(name if len(name) <= 40 else name[:40] + "…")
                known = ", ".join(SLOT_NAMES)
                _refuse(text, start, field, f"{shown} is not a known name; known are {known}")
            yield _Token(name, start, True)
    if end < len(text):
        yield _Token(text[end:], end, False)


def _template(tokens: Sequence[_Token], encoders: Sequence[Encoder]) -> Template:
    if not any(token.is_slot for token in tokens):
        return Template(("".join(token.text for token in tokens),))
    return Template(
        tuple("" if token.is_slot else token.text for token in tokens),
        tuple(
            (index, token.text, encode)
            for index, (token, encode) in enumerate(zip(tokens, encoders, strict=True))
            if token.is_slot
        ),
    )


def _refuse(text: str, position: int, field: str, reason: str) -> NoReturn:
    raise BadTemplate(
        field=field,
        reason=reason,
        position=position,
        line=text.count("\n", 0, position) + 1,
        column=position - text.rfind("\n", 0, position),
    )


# --- encoders -------------------------------------------------------------------------------------

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NOT_IN_HEADER = re.compile(r"[^ -~]")
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_URL = re.compile(r"[\x00-\x1f\x7f\\]")
_TO_QUOTE = re.compile(r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9!$%&'()*+,/:;=?@\[\]~_.-]")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?P<authority>[^/?]*)")


def _in_text(value: SlotValue) -> str:
    return "" if value is None else str(value)


def _in_form(value: SlotValue) -> str:
    return quote(_in_text(value), safe="")


def _in_xml(value: SlotValue) -> str:
    clean = _NOT_IN_XML.sub("\ufffd", _in_text(value))
    return escape(clean, {'"': "&quot;", "'": "&apos;", "\r": "&#13;"})


def _in_header(value: SlotValue) -> str:
    text = _in_text(value)
    if _NOT_IN_HEADER.search(text):
        return _NOT_IN_HEADER.sub(lambda found: quote(found[0], safe=""), text)
    return text


def _in_path(name: str, field: str) -> Encoder:
    def encode(value: SlotValue) -> str:
        if type(value) is int:
            return str(value)
        text = _in_text(value)
        # An empty value, "." or ".." would turn /jobs/7/stop into /jobs//stop or /stop.
        if not text.strip("."):
            raise MissingValue(field=field, name=name, value=value)
        return quote(text, safe="")

    return encode


def _as_json(value: SlotValue) -> str:
    return msgspec.json.encode(value).decode()


def _in_json_string(value: SlotValue) -> str:
    if type(value) is int:
        return str(value)
    return _as_json(_in_text(value))[1:-1]


_ENCODERS: Mapping[TemplateContext, Encoder] = {
    TemplateContext.HEADER: _in_header,
    TemplateContext.FORM: _in_form,
    TemplateContext.XML: _in_xml,
    TemplateContext.TEXT: _in_text,
}


# --- JSON -----------------------------------------------------------------------------------------

_QUOTE_OR_ESCAPE = re.compile(r'"|\\.?', re.DOTALL)


def _json_encoders(text: str, tokens: Sequence[_Token], field: str) -> list[Encoder]:
    """The encoder of each slot: as a JSON value, or as part of a string.

    Every rendering is valid JSON: `null` is valid exactly where any other value is, and `z` neither
    is nor continues an escape. If the text parses with these two in its slots, it parses with
    every value.
    """
    encoders: list[Encoder] = []
    sample: list[str] = []
    in_string = False
    for token in tokens:
        encoders.append(_in_json_string if in_string else _as_json)
        if token.is_slot:
            sample.append("z" if in_string else "null")
        else:
            sample.append(token.text)
            quotes = sum(found[0] == '"' for found in _QUOTE_OR_ESCAPE.finditer(token.text))
            in_string ^= quotes % 2 == 1
    try:
        json.loads("".join(sample), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        _refuse(
            text,
            _template_position(error.pos, tokens, sample),
            field,
            f"this is not JSON: {error.msg}",
        )
    except (ValueError, RecursionError) as error:
        _refuse(text, 0, field, f"this is not JSON: {error}")
    return encoders


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _template_position(position: int, tokens: Sequence[_Token], sample: Sequence[str]) -> int:
    """The position in the template of a position in the sample."""
    for token, text in zip(tokens, sample, strict=True):
        if position < len(text):
            return token.position + (0 if token.is_slot else position)
        position -= len(text)
    return tokens[-1].position + len(sample[-1])
