"""How results are written: the table on the terminal, JSON, and the table of the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from bench.results import Result

HEAD = ("id", "figure", "ours", "limit", "ratio", "peers", "target", "met")


def number(value: float) -> str:
    """Three significant digits, or whole numbers with separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def with_spread(value: float | None, spread: tuple[float, float] | None) -> str:
    """A median, with the lowest and highest sample where there are several."""
    if value is None:
        return ""
    if spread is None or spread[0] == spread[1]:
        return number(value)
    return f"{number(value)} ({number(spread[0])} to {number(spread[1])})"


def row_of(result: Result) -> tuple[str, ...]:
    """One line of the table, in the order of HEAD."""
    spread = result.spread
    peers = "; ".join(
        f"{name} {with_spread(value, spread.get(name))}" for name, value in result.peers.items()
    )
    return (
        result.id,
        result.title,
        f"{with_spread(result.ours, spread.get('ours'))} {result.unit}",
        with_spread(result.limit, spread.get("limit")),
        with_spread(result.ratio, spread.get("ratio")),
        peers,
        result.target,
        {True: "yes", False: "no", None: ""}[result.met],
    )


def terminal_table(results: Sequence[Result]) -> Table:
    table = Table(*HEAD, title="Drumline: medians (lowest to highest)")
    for result in results:
        table.add_row(*row_of(result))
    return table


def markdown_table(results: Sequence[Result]) -> str:
    rows = [HEAD, ("---",) * len(HEAD), *map(row_of, results)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def write_json(results: Sequence[Result], file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
