"""What commands print: results on stdout, notes on stderr.

In a pipe, output is plain and stable; on a terminal it has colours, and rich draws the tables.
`--json` prints the reply as it came.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from drumline.cli import groups

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


def print_note(text: str) -> None:
    """Print something that is not data."""
    click.echo(text, err=True)


def print_result(data: Any, text: str) -> None:
    """Print the result of a command: text for people, the data for `--json`."""
    click.echo(to_json(data) if groups.wants_json() else text)


def print_record(data: Any, pairs: Iterable[tuple[str, Any]]) -> None:
    """Print one object: a line for each of its fields that has a value."""
    filled = [(name, format_value(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in filled), default=0) + 2
    margin = "\n" + " " * width
    print_result(
        data,
        "\n".join(name.ljust(width) + value.replace("\n", margin) for name, value in filled),
    )


def print_table(
    data: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]], nothing: str
) -> None:
    """Print a list: a drawn table on a terminal, plain columns in a pipe."""
    if groups.wants_json():
        click.echo(to_json(data))
        return
    cells = [[format_value(value).replace("\n", " ") for value in row] for row in rows]
    if not cells:
        print_note(nothing)
    elif sys.stdout.isatty():
        _print_drawn(columns, cells)
    else:
        _print_plain(columns, cells)


def print_next_page(before: int | None) -> None:
    """Tell how to get the next page of a list, if there is one."""
    if before is not None and not groups.wants_json():
        print_note(f"There may be more: --before {before}")


def to_json(data: Any) -> str:
    """Data as JSON with indentation."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def format_value(value: Any) -> str:
    """A value for people."""
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


def printable(text: str) -> str:
    """Text without control characters: names and errors of users reach the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def coloured(state: str) -> str:
    """A state in its colour, on a terminal that has colours."""
    colour = COLOURS.get(state)
    plain = colour is None or "NO_COLOR" in os.environ or not sys.stdout.isatty()
    return state if plain else click.style(state, fg=colour)


def plural(n: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {whole % 60} s"
    return f"{whole} s"


def _print_plain(columns: Sequence[str], cells: list[list[str]]) -> None:
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        click.echo("  ".join(map(str.ljust, line, widths)).rstrip())


def _print_drawn(columns: Sequence[str], cells: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in cells:
        table.add_row(*(Text.from_ansi(cell) for cell in row))
    Console().print(table)
