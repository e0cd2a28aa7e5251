"""Masking of secrets in everything that is stored, logged or shown.

A secret is recognised by its name (a setting, a header, a query parameter, a JSON key, a form
field, an XML element), by its position in a URL, or by its value, when a call has sent it. Texts
are masked before they are cut, so that no half of a secret remains at the cut.

Responses are untrusted text: the patterns never backtrack over what they have matched (`++`), so
16 KB of `tokentokentoken…` cost no more than any other 16 KB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

import msgspec

MASK = "***"
SHORTEST = 6
"""Shorter values are not searched for: `1` as a password would mask every digit 1 in a text."""

SECRET_NAMES = (
    "authorization", "cookie", "token", "secret", "password", "passwd", "passphrase", "pwd",
    "credential", "signature", "jwt", "jaas", "x-auth", "user.info", "api key", "access key",
    "private key", "signing key", "account key", "keystore key", "session id",
)  # fmt: skip
"""A name that contains one of these words belongs to a secret. A space stands for an optional
separator: `api key` matches apikey, api_key, api-key and api.key."""


def names_pattern(letter: str = "{0}") -> str:
    """The words as a regular expression; `letter` formats each letter from its two cases."""
    return "|".join(
        "".join(
            "[-_.]?" if c == " " else letter.format(c, c.upper()) if c.isalpha() else re.escape(c)
            for c in word
        )
        for word in SECRET_NAMES
    )


_NAME = re.compile(names_pattern())
_HINTS = ("token", "key", "pass", "secret", "auth", "cookie", "pwd", "cred", "sign", "sess",
          "jwt", "jaas", "user.info")  # fmt: skip
"""A text without any of these contains no secret name. This test takes 0.14 ms for 16 KB; a
case-insensitive search takes 4.3 ms, and most responses contain no hint."""
_JSON_KEY = re.compile(r'"([^"\\]*+)"[ \t\r\n]*+:[ \t\r\n]*+')
_JSON_PART = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{\]},]', re.DOTALL)
_FIELD = re.compile(r"(?:^|(?<=[?&;\s]))([^=&;?\s\"<>]++)=[^&;\s#\"<>]++")
_ELEMENT = re.compile(r"(<([^<>/\s]++)[^<>]*+>)[^<]++")


def is_secret_name(name: str) -> bool:
    """Whether a setting, header, parameter or key of this name holds a secret."""
    return _NAME.search(name.lower()) is not None


def may_contain_secret_names(text: str) -> bool:
    """A quick test that finds every text with a secret name, and some others."""
    lower = text.lower()
    for hint in _HINTS:  # noqa: SIM110  # any() takes three times as long
        if hint in lower:
            return True
    return False


def mask_named_values(text: str) -> str:
    """Mask the values of secret names in a URL, in JSON (complete or cut off), a form or XML."""
    if not may_contain_secret_names(text):
        return text
    text = _mask_json(text)
    text = _FIELD.sub(lambda m: f"{m[1]}={MASK}" if is_secret_name(m[1]) else m[0], text)
    return _ELEMENT.sub(lambda m: m[1] + MASK if is_secret_name(m[2]) else m[0], text)


def _mask_json(text: str) -> str:
    kept: list[str] = []
    start = end = 0
    while (match := _JSON_KEY.search(text, end)) is not None:
        end = match.end()
        if is_secret_name(match[1]):
            kept += (text[start:end], f'"{MASK}"')
            start = end = _value_end(text, end)
    return "".join((*kept, text[start:]))


def _value_end(text: str, start: int) -> int:
    """The end of the JSON value that starts here, or of the text if that comes first."""
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


class SecretValues:
    """The secret values of a call, which are masked wherever a text repeats them."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        found: set[str] = set()
        for value in values:
            # In `Bearer xyz` the secret follows the space, in `a=xyz; b=…` each `=`.
            pairs = (pair.partition("=")[2].strip() for pair in value.split(";"))
            for part in (value, value.partition(" ")[2].strip(), *pairs):
                if len(part) >= SHORTEST:
                    found |= _spellings(part)
        self._values = sorted(found, key=len, reverse=True)

    def with_token(self, token: str) -> SecretValues:
        """These values and a callback token, however short it is."""
        more = SecretValues()
        more._values = sorted({*self._values, *_spellings(token)}, key=len, reverse=True)
        return more

    def mask(self, text: str, cut: bool = False) -> str:
        """Mask the values in a text. `cut`: the text was cut off, so it may end within a secret."""
        for value in self._values:
            if value in text:
                text = text.replace(value, MASK)
        if cut:
            text = text[: len(text) - max((_overlap(text, v) for v in self._values), default=0)]
        return text


def _spellings(value: str) -> set[str]:
    """The value as it is, and encoded for a URL and for JSON."""
    return {value, quote(value, safe=""), msgspec.json.encode(value).decode()[1:-1]}


def _overlap(text: str, value: str) -> int:
    """The number of characters at the end of the text that are the beginning of the value."""
    for length in range(min(len(value) - 1, len(text)), 0, -1):
        if text.endswith(value[:length]):
            return length
    return 0


# --- settings and URLs ---------------------------------------------------------------------------

_URL_PASSWORD = re.compile(r"(?P<user>://[^/@:]*):.*@")
"""Up to the last @, since a password may contain one; masking too much does no harm."""
_URL_PASSWORDS = re.compile(r"(://[^/\s:@]*:(?=[^/\s@]+@)|[?&;]password=)[^/\s@&;]+", re.IGNORECASE)


def mask_url(url: str) -> str:
    """A URL without its password."""
    return _URL_PASSWORD.sub(rf"\g<user>:{MASK}@", url)


def has_url_password(text: str) -> bool:
    return _URL_PASSWORDS.search(text) is not None


def mask_url_passwords(text: str) -> str:
    """A text without the passwords of the URLs in it."""
    return _URL_PASSWORDS.sub(rf"\1{MASK}", text)


def mask_setting(name: str, value: object) -> object:
    """The value of a setting, masked at every depth."""
    if isinstance(value, dict):
        return {key: mask_setting(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_setting(name, inner) for inner in value]
    if value and is_secret_name(name):
        return MASK
    return mask_url(value) if isinstance(value, str) else value
