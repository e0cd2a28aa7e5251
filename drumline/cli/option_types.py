"""The types of arguments and options, and the option that all change commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from drumline.command_layer.base import REQUEST_ID_LIMIT
from drumline.command_layer.fields import LONGEST_TIMEOUT, moment
from drumline.errors import WrongUse

SUFFIX_LIMIT = 16
"""A command that sends several requests adds a suffix to its request id for each."""


def json_value(value: str) -> Any:
    """A JSON document on the command line."""
    try:
        found = msgspec.json.decode(value)
        msgspec.msgpack.encode(found)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise click.BadParameter(f"it is not JSON: {error}") from None
    except OverflowError:
        raise click.BadParameter("a number in it does not fit into 64 bits") from None
    return found


def seconds(least: float, most: float) -> Callable[[str], float]:
    """A duration."""

    def convert(value: str) -> float:
        try:
            found = float(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a number of seconds") from None
        if not least <= found <= most:
            raise click.BadParameter(f"{value} is not between {least:g} and {most:g} s")
        return found

    convert.__name__ = "seconds"  # the name of the type in the help
    return convert


def point_in_time(value: str) -> str:
    """A time. It is sent as it was written; the gateway converts it in the same way."""
    try:
        moment(value)
    except WrongUse as error:
        raise click.BadParameter(str(error)) from None
    return value


def text(most: int, least: int = 1) -> Callable[[str], str]:
    """Text of a limited length."""

    def convert(value: str) -> str:
        if not least <= len(value) <= most:
            raise click.BadParameter(f"it must have {least} to {most} characters")
        return value

    convert.__name__ = "text"
    return convert


TYPE = text(128)
PRIORITY = click.IntRange(0, 9)
TIMEOUT = seconds(0.001, LONGEST_TIMEOUT)

request_id = click.option(
    "--request-id",
    type=text(REQUEST_ID_LIMIT - SUFFIX_LIMIT),
    metavar="ID",
    help="An id for this change: repeated with the same id, it is made once.",
)
