"""W3C trace context: the run's trace id, and a new span id for each request."""

from __future__ import annotations

import random
import re

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


def traceparent(trace_id: str | None) -> str:
    """The header of one request; an invalid trace id is replaced by a new one."""
    if trace_id is None or not _TRACE_ID.fullmatch(trace_id):
        trace_id = f"{_not_zero(128):032x}"
    return f"00-{trace_id}-{_not_zero(64):016x}-01"


def _not_zero(bits: int) -> int:
    return random.getrandbits(bits) or 1
