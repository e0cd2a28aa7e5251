"""Secrets, kept out of what is kept.

By name (a header, a query parameter, a key of a JSON object, a form field, an XML element), and by
value: what a call sent as a secret is masked wherever it comes back. All of it happens before
anything is cut, so that half a secret is not left at the cut.

An answer is a stranger's text: the patterns never go back over what they have read (`++`), so
that 16 KB of `tokentokentoken…` costs what any 16 KB cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

import msgspec

MASK = "***"
SHORTEST = 6
"""Shorter values are not looked for: `1` as a password would turn every number into stars."""

_NAME = re.compile(
    r"authorization|cookie|token|secret|passw(?:or)?d|passphrase|pwd|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|signing[-_]?key|credential|signature|session[-_]?id|jwt|x-auth"
)
_HINTS = ("token", "key", "pass", "secret", "auth", "cookie", "pwd", "cred", "sign", "sess", "jwt")
"""A text without any of these has no secret name. 0.14 ms for 16 KB, where the pattern, told to
ignore case, takes 4.3 ms: and most answers have none."""
_JSON_KEY = re.compile(r'"([^"\\]*+)"[ \t\r\n]*+:[ \t\r\n]*+')
_JSON_PART = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{\]},]', re.DOTALL)
_FIELD = re.compile(r"(?:^|(?<=[?&;\s]))([^=&;?\s\"<>]++)=[^&;\s#\"<>]++")
_ELEMENT = re.compile(r"(<([^<>/\s]++)[^<>]*+>)[^<]++")


def is_secret(name: str) -> bool:
    """Does a header, a parameter or a key of this name hold a secret?"""
    return _NAME.search(name.lower()) is not None


def may_name_secrets(text: str) -> bool:
    """Quickly: could there be a secret name in this text?"""
    lower = text.lower()
    for hint in _HINTS:  # noqa: SIM110  # any() takes three times as long, for every answer
        if hint in lower:
            return True
    return False


def mask_names(text: str) -> str:
    """Mask what stands behind secret names in a URL, JSON (also a part of it), a form or XML."""
    if not may_name_secrets(text):
        return text
    text = _mask_json(text)
    text = _FIELD.sub(lambda m: f"{m[1]}={MASK}" if is_secret(m[1]) else m[0], text)
    return _ELEMENT.sub(lambda m: m[1] + MASK if is_secret(m[2]) else m[0], text)


def _mask_json(text: str) -> str:
    kept: list[str] = []
    start = end = 0
    while (match := _JSON_KEY.search(text, end)) is not None:
        end = match.end()
        if is_secret(match[1]):
            kept += (text[start:end], f'"{MASK}"')
            start = end = _value_end(text, end)
    return "".join((*kept, text[start:]))


def _value_end(text: str, start: int) -> int:
    """Where the JSON value that begins here ends, or the text, if it ends first."""
    depth = 0
    for part in _JSON_PART.finditer(text, start):
        match part[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
                if depth < 0:
                    return part.start()
                if depth == 0:
                    return part.end()
            case ",":
                if depth == 0:
                    return part.start()
            case _:
                if depth == 0:
                    return part.end()
    return len(text)


class Secrets:
    """Values that a call sent as secrets, to be masked wherever they come back."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        found: set[str] = set()
        for value in values:
            # `Bearer xyz` has its secret behind the space, `a=xyz; b=…` behind each `=`.
            pairs = (pair.partition("=")[2].strip() for pair in value.split(";"))
            for part in (value, value.partition(" ")[2].strip(), *pairs):
                if len(part) >= SHORTEST:
                    found |= _spellings(part)
        self._values = sorted(found, key=len, reverse=True)

    def and_token(self, token: str) -> Secrets:
        """These and a callback's token, however short it is."""
        more = Secrets()
        more._values = sorted({*self._values, *_spellings(token)}, key=len, reverse=True)
        return more

    def mask(self, text: str, cut: bool = False) -> str:
        """`cut`: the text went on, so that its end may be the beginning of a secret."""
        for value in self._values:
            if value in text:
                text = text.replace(value, MASK)
        if cut:
            text = text[: len(text) - max((_overlap(text, v) for v in self._values), default=0)]
        return text


def _spellings(value: str) -> set[str]:
    """As it is, and as it would come back inside a URL or JSON."""
    return {value, quote(value, safe=""), msgspec.json.encode(value).decode()[1:-1]}


def _overlap(text: str, value: str) -> int:
    """How many letters at the end of the text are the beginning of the value."""
    for length in range(min(len(value) - 1, len(text)), 0, -1):
        if text.endswith(value[:length]):
            return length
    return 0
