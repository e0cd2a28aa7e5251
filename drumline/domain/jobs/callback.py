"""The body of a callback: what the target of an asynchronous call reports."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Callback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Success and failure end the run; progress is only stored."""

    status: Literal["success", "failure", "progress"]
    message: str | None = None
    result: Any = None
