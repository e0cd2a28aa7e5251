"""`bin/bench`: measure, print one table, and with --json write the figures down."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from bench import footprint, jobs, latency, sweeps, throughput
from bench.figure import Figure, Measure

ALL: dict[str, Measure] = {
    "P1": throughput.durable_mariadb,
    "P2": throughput.durable_sqlite,
    "P3": latency.start_of_one,
    "P4": jobs.punctuality,
    "P6": sweeps.items,
    "P8": jobs.calls,
    "P9": footprint.idle,
    "P10": latency.first_task,
    "P11": throughput.mixed,
    "P12": throughput.submission,
}


@click.command()
@click.option("--quick", is_flag=True, help="Smaller numbers, for a first look.")
@click.option("--only", multiple=True, type=click.Choice(list(ALL)), help="Measure only these.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the figures here.")
def main(quick: bool, only: tuple[str, ...], file: Path | None) -> None:
    """Measure Drumline on this machine. Nothing else should run meanwhile."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and leave no processes behind
    console = Console(stderr=True)
    figures: list[Figure] = []
    for name in only or ALL:
        with console.status(f"measuring {name} …"):
            figures += ALL[name](quick)
    print_table(figures)
    if file is not None:
        file.write_bytes(msgspec.json.encode([figure.as_dict() for figure in figures]))


def print_table(figures: list[Figure]) -> None:
    table = Table("", "figure", "ours", "target", "limit", "met", title="Drumline")
    for figure in figures:
        sign = "≥" if figure.higher_is_better else "≤"
        table.add_row(
            figure.id,
            figure.what,
            f"{figure.ours:,.2f} {figure.unit}",
            f"{sign} {figure.target:,g}",
            "" if figure.limit is None else f"{figure.limit:,.0f}",
            "yes" if figure.met else "no",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
