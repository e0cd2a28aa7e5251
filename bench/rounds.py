"""Takes the samples: contestants in turn, round after round, with the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from bench.figure import LIMIT, OURS, Benchmark, Contestant, Samples


class Step(NamedTuple):
    """One sample to be taken."""

    benchmark: int
    round: int
    contestant: Contestant


Report = Callable[[str], None]


def steps_of(benchmarks: Sequence[Benchmark]) -> list[Step]:
    """Ours, limit, peers, and again: a slow phase of the machine meets all of them."""
    return [
        Step(number, turn, contestant)
        for number, benchmark in enumerate(benchmarks)
        for turn in range(benchmark.rounds)
        for contestant in benchmark.contestants
    ]


def time_left(steps: Iterable[Step], taken: Mapping[tuple[int, str], float]) -> float:
    """Seconds for these steps: the last duration of the same contestant, or what it declares."""
    return sum(taken.get((s.benchmark, s.contestant.name), s.contestant.seconds) for s in steps)


def take_samples(
    benchmarks: Sequence[Benchmark], samples: Samples, progress: Report, warn: Report
) -> bool:
    """Take all samples. A contestant that fails is left out, and with ours or the limit the figure.

    The samples are added to `samples` as they come, so that an interrupted run keeps those that it
    has. False: something was left out.
    """
    taken: dict[tuple[int, str], float] = {}
    failed: set[tuple[int, str]] = set()
    steps = steps_of(benchmarks)
    for position, step in enumerate(steps):
        benchmark, name = benchmarks[step.benchmark], step.contestant.name
        if not failed.isdisjoint((step.benchmark, n) for n in (name, OURS, LIMIT)):
            continue
        progress(_progress_text(benchmark, step, time_left(steps[position:], taken)))
        begun = time.monotonic()
        try:
            values = step.contestant.measure()
        except Exception as error:
            warn(f"{benchmark.figures[0].id}: {name} failed and is left out: {error}")
            failed.add((step.benchmark, name))
            _forget(samples, benchmark, name)
            continue
        taken[step.benchmark, name] = time.monotonic() - begun
        for figure_id, value in values.items():
            samples.setdefault(figure_id, {}).setdefault(name, []).append(value)
    return not failed


def _forget(samples: Samples, benchmark: Benchmark, name: str) -> None:
    for figure in benchmark.figures:
        if name in (OURS, LIMIT):
            samples.pop(figure.id, None)
        else:
            samples.get(figure.id, {}).pop(name, None)


def _progress_text(benchmark: Benchmark, step: Step, left: float) -> str:
    minutes, seconds = divmod(round(left), 60)
    return (
        f"{benchmark.figures[0].id}, round {step.round + 1} of {benchmark.rounds}: "
        f"{step.contestant.name}; about {minutes}:{seconds:02} left"
    )
