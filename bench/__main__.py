"""`bin/bench`: measures, prints one table, and writes JSON and the documentation if asked to."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from bench.against import checkout, with_checkout
from bench.catalogue import PLANS, WITH_PEERS, benchmarks
from bench.docs import write_docs
from bench.figure import OURS, Benchmark, BenchOptions, Samples
from bench.peers.setup import available_peers, install_venv
from bench.report import terminal_table, write_json
from bench.results import Result, result_of
from bench.rounds import take_samples


@click.command()
@click.argument("names", nargs=-1, metavar="[FIGURE]...")
@click.option("--quick", is_flag=True, help="One round with smaller numbers, mostly on SQLite.")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of every figure.")
@click.option("--no-peers", is_flag=True, help="Measure Drumline and the limits only.")
@click.option("--against", metavar="PATH_OR_REV", help="Another checkout: P1, P2 and P3 of it too.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the results here.")
@click.option("--docs", is_flag=True, help="Write table and plots of docs/benchmarks.md.")
def main(
    names: tuple[str, ...],
    quick: bool,
    rounds: int | None,
    no_peers: bool,
    against: str | None,
    file: Path | None,
    docs: bool,
) -> None:
    """Measure Drumline on this machine, on which nothing else should run meanwhile.

    All figures are measured unless some are named, such as P1 and P3.
    """
    if unknown := set(names) - PLANS.keys():
        raise click.BadParameter(
            f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PLANS)}"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all processes are ended
    chosen = [name for name in PLANS if name in names or not names]
    wants_peers = not no_peers and not WITH_PEERS.isdisjoint(chosen)
    options = BenchOptions(quick=quick, peers=available_peers(warn) if wants_peers else ())
    planned = benchmarks(chosen, options)
    if rounds is not None:
        planned = [benchmark._replace(rounds=rounds) for benchmark in planned]
    samples: Samples = {}
    complete = False
    with ExitStack() as stack:
        if against is not None:
            planned = with_checkout(planned, stack.enter_context(checkout(against)), quick)
        try:
            complete = measure(planned, samples)
        finally:
            # An interrupted run shows what it has.
            results = results_of(planned, samples)
            Console().print(terminal_table(results))
            if file is not None:
                write_json(results, file)
    if docs and install_venv(warn):
        write_docs(results)
    sys.exit(0 if complete else 1)


def measure(planned: list[Benchmark], samples: Samples) -> bool:
    """Take all samples, with a line of progress meanwhile; whether none is missing."""
    console = Console(stderr=True)
    begun = time.monotonic()
    with console.status("measuring") as status:

        def progress(text: str) -> None:
            if console.is_terminal:
                status.update(text)
            else:
                console.print(text)

        complete = take_samples(planned, samples, progress, warn)
    console.print(f"measured in {time.monotonic() - begun:,.0f} s")
    return complete


def results_of(planned: list[Benchmark], samples: Samples) -> list[Result]:
    """The results of all figures of which there is a sample of ours."""
    figures = [figure for benchmark in planned for figure in benchmark.figures]
    return [result_of(f, samples[f.id]) for f in figures if OURS in samples.get(f.id, {})]


def warn(text: str) -> None:
    Console(stderr=True).print(f"bench: {text}", style="bold red", markup=False)


if __name__ == "__main__":
    main()
