"""The stored part of a response: its body, decompressed and decoded, and its headers.

All functions are pure, and bounded by the size to keep, not by the size of the response.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime

STORED_HEADERS = (
    "Content-Type", "Content-Length", "Content-Encoding", "Date", "ETag", "Location",
    "Retry-After", "Server", "WWW-Authenticate", "X-Correlation-Id", "X-Request-Id",
)  # fmt: skip
_KEPT_HEADERS = {name.lower(): name for name in STORED_HEADERS}
MAX_RETRY_AFTER = 3600.0

_PACKED: Mapping[str, int] = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""The `wbits` argument of zlib for each content encoding."""
_RAW_DEFLATE = -15
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
# Not every Python codec is a charset, and some (punycode) take quadratic time.
_KNOWN_CHARSET = re.compile(
    r"utf-?(?:8|16|32)|iso-?8859|latin|us-ascii|ascii|cp\d|windows-\d|gb|big5|shift|sjis|euc|koi8",
    re.IGNORECASE,
)


def decompress(raw: bytes, encoding: str, limit: int) -> tuple[bytes, bool]:
    """Decompress at most `limit` bytes, and tell whether that is all of the body.

    A decompression bomb is not expanded further than that. A body with an unsupported encoding is
    returned as it is, a corrupt one as far as it can be read.
    """
    wbits = _PACKED.get(encoding.strip().lower())
    if wbits is None:
        return raw[:limit], len(raw) <= limit
    unpacked = bytearray()
    while raw and len(unpacked) < limit:
        stream = zlib.decompressobj(wbits)
        try:
            unpacked += stream.decompress(raw, limit - len(unpacked))
        except zlib.error:
            if wbits == 15 and not unpacked:  # some servers omit the header of deflate
                wbits = _RAW_DEFLATE
                continue
            return bytes(unpacked), False
        if not stream.eof:
            return bytes(unpacked), False
        raw = stream.unused_data  # gzip may consist of several members
    return bytes(unpacked), not raw


def decode_text(raw: bytes, content_type: str, whole: bool) -> str:
    """Decode bytes in the charset of the Content-Type. A character that was cut at the end is
    dropped, an invalid one is replaced."""
    name = "utf-8"
    if "charset" not in content_type.lower():  # most responses name none, or utf-8
        with suppress(UnicodeDecodeError):
            return raw.decode()
    elif (match := _CHARSET.search(content_type)) and _KNOWN_CHARSET.match(match[1]):
        name = match[1]
    try:
        decoder = codecs.getincrementaldecoder(name)("replace")
    except LookupError:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(raw, final=whole)


def stored_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that are stored; none of them holds a secret."""
    return {
        known: value
        for name, value in headers.items()
        if (known := _KEPT_HEADERS.get(name.lower())) is not None
    }


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """The seconds that a `Retry-After` header asks to wait; `now` is a POSIX time."""
    said = headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdigit():
        return min(float(said[:9]), MAX_RETRY_AFTER)
    try:
        at = parsedate_to_datetime(said)
    except ValueError:
        return 0.0
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return min(max(at.timestamp() - now, 0.0), MAX_RETRY_AFTER)
