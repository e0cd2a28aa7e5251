"""Arguments of commands as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from drumline.client.control import encode
from drumline.errors import WrongUse

MESSAGE_LIMIT = 24 * 1024 * 1024
"""The gateway disconnects a client that sends more than 32 MiB."""

Moment = datetime | str | float
"""A time: with a zone, as ISO 8601 with a zone, or in epoch seconds."""


def time_text(at: Moment | None) -> str | None:
    """A time as it is sent."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise WrongUse(reason=f"{at!r} has no time zone")
        return at.isoformat()
    return at if at is None or isinstance(at, str) else repr(at)


def plain(command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as plain data without those that are None; refused if they cannot be sent."""
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        found: dict[str, Any] = {
            name: value if _is_encoded(value) else msgspec.to_builtins(value, str_keys=True)
            for name, value in given.items()
        }
        size = len(encode(found))
    except UnicodeEncodeError:
        raise WrongUse(reason=f"{command}: an argument is not valid UTF-8") from None
    except OverflowError:
        raise WrongUse(
            reason=f"{command}: a number in an argument does not fit into 64 bits"
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongUse(reason=f"{command}: an argument cannot be sent: {error}") from None
    if size > MESSAGE_LIMIT:
        raise WrongUse(
            reason=f"{command}: the message has {size} bytes, at most {MESSAGE_LIMIT} can be sent"
        )
    return found


def _is_encoded(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], msgspec.Raw)
