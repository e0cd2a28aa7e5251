"""What the CLI halves share: the way to the gateway, arguments, and how answers look.

Data goes to stdout and talk to stderr. In a pipe, output is plain and stable; on a terminal it has
colours, and rich draws the tables. `--json` prints the answer as it came.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import msgspec

from drumline.cli import groups
from drumline.cli.gateway import ask as ask
from drumline.cli.gateway import change as change
from drumline.command_layer.base import REQUEST_ID_LIMIT
from drumline.command_layer.fields import LONGEST_TIMEOUT, moment
from drumline.errors import WrongUse

COLOURS = {
    "success": "green",
    "rollback_success": "green",
    "free": "green",
    "fail": "red",
    "partial_fail": "red",
    "rollback_fail": "red",
    "dead": "red",
    "running": "cyan",
    "rollback_running": "cyan",
    "busy": "cyan",
    "waiting_callback": "cyan",
    "finished": "green",
    "failed": "red",
    "stopping": "yellow",
    "stopped": "yellow",
    "cancel": "yellow",
    "skipped": "yellow",
    "draining": "yellow",
}

ROOM_FOR_PARTS = 16
"""A command that is sent in parts adds to its request id what tells them apart."""

# --- arguments ---------------------------------------------------------------------------------


def document(value: str) -> Any:
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
    """A length of time."""

    def convert(value: str) -> float:
        try:
            found = float(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a number of seconds") from None
        if not least <= found <= most:
            raise click.BadParameter(f"{value} is not between {least:g} and {most:g} s")
        return found

    convert.__name__ = "seconds"  # what the help calls it
    return convert


def point_in_time(value: str) -> str:
    """A time. It travels as it was written; the gateway reads it the same way."""
    try:
        moment(value)
    except WrongUse as error:
        raise click.BadParameter(str(error)) from None
    return value


def text(most: int, least: int = 1) -> Callable[[str], str]:
    """Some text of a bounded length."""

    def convert(value: str) -> str:
        if not least <= len(value) <= most:
            raise click.BadParameter(f"it must have {least} to {most} characters")
        return value

    convert.__name__ = "text"
    return convert


TYPE = text(128)
PRIORITY = click.IntRange(0, 9)
TIMEOUT = seconds(0.001, LONGEST_TIMEOUT)

changes = click.option(
    "--request-id",
    type=text(REQUEST_ID_LIMIT - ROOM_FOR_PARTS),
    metavar="ID",
    help="A name for this change: sent again under the same name, it is done once.",
)
"""Every command that changes something takes this."""

# --- answers -----------------------------------------------------------------------------------


def say(words: str) -> None:
    """Talk, which is not data."""
    click.echo(words, err=True)


def answer(data: Any, words: str) -> None:
    """The answer: a sentence or some lines for people, the data itself for `--json`."""
    click.echo(as_text(data) if groups.wants_json() else words)


def as_text(data: Any) -> str:
    """JSON as it is printed."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def record(data: Any, pairs: Iterable[tuple[str, Any]]) -> None:
    """One thing, a line for each of its properties that has a value."""
    filled = [(name, shown(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in filled), default=0) + 2
    margin = "\n" + " " * width
    answer(
        data,
        "\n".join(name.ljust(width) + value.replace("\n", margin) for name, value in filled),
    )


def table(data: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]], nothing: str) -> None:
    """A list: drawn on a terminal, plain columns in a pipe."""
    if groups.wants_json():
        click.echo(as_text(data))
        return
    cells = [[shown(value).replace("\n", " ") for value in row] for row in rows]
    if not cells:
        say(nothing)
    elif sys.stdout.isatty():
        _draw(columns, cells)
    else:
        _print_plain(columns, cells)


def more(before: int | None) -> None:
    """Tell people that a list has another page."""
    if before is not None and not groups.wants_json():
        say(f"There may be more: --before {before}")


def shown(value: Any) -> str:
    """A value as people read it."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return coloured(printable(value))
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)


def printable(words: str) -> str:
    """Text without what a terminal would obey: names and errors come from anywhere."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in words)


def coloured(word: str) -> str:
    """A state in its colour, on a terminal that has colours."""
    colour = COLOURS.get(word)
    plain = colour is None or "NO_COLOR" in os.environ or not sys.stdout.isatty()
    return word if plain else click.style(word, fg=colour)


def counted(n: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def span(seconds: float) -> str:
    """A length of time as people say it."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min"


def _print_plain(columns: Sequence[str], cells: list[list[str]]) -> None:
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        click.echo("  ".join(map(str.ljust, line, widths)).rstrip())


def _draw(columns: Sequence[str], cells: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in cells:
        drawn.add_row(*(Text.from_ansi(cell) for cell in row))
    Console().print(drawn)
