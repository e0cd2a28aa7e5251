"""The types of command arguments, and how values are converted for storage and for answers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, overload

import msgspec
from msgspec import Meta

from drumline.errors import WrongUse

LARGEST_ID = 2**63 - 1
PARAM_LIMIT = 1024 * 1024
"""Bytes of JSON in one parameter."""
LONGEST_TIMEOUT = 14 * 86400
LATEST = 253_402_300_799
"""The last second of the year 9999."""
PAGE_LIMIT = 1000

Id = Annotated[int, Meta(ge=1, le=LARGEST_ID)]
Text64 = Annotated[str, Meta(max_length=64)]
Text128 = Annotated[str, Meta(max_length=128)]
Text255 = Annotated[str, Meta(max_length=255)]
Type = Annotated[str, Meta(min_length=1, max_length=128)]
Priority = Annotated[int, Meta(ge=0, le=9)]
Timeout = Annotated[float, Meta(ge=0.001, le=LONGEST_TIMEOUT)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_LIMIT)]

_PATH = re.compile(r"(?s)(?P<reason>.*) - at (?:`key` in )?`\$\.?(?P<path>.*)`")
_UNKNOWN = re.compile(r"Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`")


def invalid_field(error: msgspec.ValidationError) -> dict[str, str]:
    """The `field` and the `reason` of an error, from msgspec's text: it has no other form.

    There is no field if the whole value is wrong.
    """
    text, path = str(error), ""
    if found := _PATH.fullmatch(text):
        text, path = found["reason"], found["path"]
    if found := _UNKNOWN.fullmatch(text):
        path = f"{path}.{found['name']}" if path else found["name"]
        text = "required field is missing" if "missing" in found["what"] else "unknown field"
    reason = text[:1].lower() + text[1:].replace("`", "")
    return {"field": path, "reason": reason} if path else {"reason": reason}


def as_json(value: Any) -> str | None:
    """Encode a parameter for storage; refuse one that is too large."""
    if value is None:
        return None
    document = msgspec.json.encode(value)
    if len(document) > PARAM_LIMIT:
        raise WrongUse(
            reason=f"the parameter has {len(document)} bytes; the limit is {PARAM_LIMIT}"
        )
    return document.decode()


def from_json(text: str | None) -> Any:
    """Decode a stored document for an answer."""
    return None if text is None else msgspec.json.decode(text)


@overload
def iso(micros: int) -> str: ...


@overload
def iso(micros: int | None) -> str | None: ...


def iso(micros: int | None) -> str | None:
    """Format a stored time for an answer: ISO 8601 in UTC."""
    if micros is None:
        return None
    moment = datetime.fromtimestamp(micros // 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{micros % 1_000_000:06d}Z"


def moment(text: str) -> int:
    """Parse a time, ISO 8601 with a zone or epoch seconds, into microseconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = _from_iso(text)
    if not 0 <= seconds <= LATEST:
        raise WrongUse(reason=f"{text!r} is not a time between the years 1970 and 9999")
    return round(seconds * 1_000_000)


def _from_iso(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(
            reason=f"{text!r} is not a time: write 2030-01-31T12:00:00Z or epoch seconds"
        ) from None
    if found.tzinfo is None:
        raise WrongUse(reason=f"{text!r} has no time zone: add Z or an offset such as +02:00")
    return found.timestamp()
