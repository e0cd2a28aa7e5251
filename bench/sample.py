"""`python -m bench.sample P1 [--quick]`: takes one sample of ours and prints it as JSON.

Run by the Python of another checkout, with this checkout's `bench` and `tests` on its path, it
measures the other Drumline in the same way.
"""

from __future__ import annotations

import sys

import click
import msgspec

from bench.catalogue import AGAINST, PLANS
from bench.figure import OURS, Benchmark, BenchOptions


@click.command()
@click.argument("name", type=click.Choice(AGAINST))
@click.option("--quick", is_flag=True)
def main(name: str, quick: bool) -> None:
    benchmark = PLANS[name](BenchOptions(quick=quick))
    assert isinstance(benchmark, Benchmark)
    ours = next(c for c in benchmark.contestants if c.name == OURS)
    sys.stdout.write(msgspec.json.encode(ours.measure()).decode())


if __name__ == "__main__":
    main()
