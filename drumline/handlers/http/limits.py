"""Limits for the stored parts of a call, and the cutting of texts to them.

The result of a call must fit into a task's result (64 KB of JSON), whatever the response was, so
all limits count bytes of JSON, in which a control character takes six.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

STORED_URL_LIMIT = 4 * 1024
STORED_HEADER_LIMIT = 512
STORED_HEADERS_LIMIT = 6 * 1024
STORED_REQUEST_BODY_LIMIT = 8 * 1024
STORED_ERROR_LIMIT = 1024
STORED_RESPONSE_BODY_LIMIT = 16 * 1024
READ_LIMIT = 1024 * 1024
"""A response of at most this size is read to its end, so that the connection can be reused. Beyond
it the connection is closed: a new one costs less than the rest of a huge response."""


def cut_text(text: str, limit: int) -> tuple[str, bool]:
    """The beginning of a text that fits into `limit` bytes of JSON, and whether it was cut."""
    if len(text) * 6 <= limit:
        return text, False
    fitting = text[:limit]
    while (size := len(msgspec.json.encode(fitting)) - 2) > limit:
        fitting = fitting[: min(len(fitting) - 1, len(fitting) * limit // size)]
    return fitting, len(fitting) < len(text)


def cut_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The first headers that fit into the limit together."""
    longest = max(map(len, headers.values()), default=0)
    if (
        longest * 6 <= STORED_HEADER_LIMIT
        and sum(map(len, headers)) + longest * len(headers) <= 512
    ):
        return dict(headers)  # the usual case, whatever the characters
    kept: dict[str, str] = {}
    left = STORED_HEADERS_LIMIT
    for name, value in headers.items():
        value, cut = cut_text(value, STORED_HEADER_LIMIT)
        left -= _size(name) + _size(value) + 2
        if left < 0:
            break
        kept[name] = value + "…" if cut else value
    return kept


def _size(text: str) -> int:
    return len(msgspec.json.encode(text))
