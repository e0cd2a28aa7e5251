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


def take_samples(benchmarks: Sequence[Benchmark], progress: Report, warn: Report) -> Samples:
    """All samples. A peer that fails is left out; ours and the limit must not fail."""
    samples: Samples = {figure.id: {} for b in benchmarks for figure in b.figures}
    taken: dict[tuple[int, str], float] = {}
    failed: set[tuple[int, str]] = set()
    steps = steps_of(benchmarks)
    for position, step in enumerate(steps):
        key = (step.benchmark, step.contestant.name)
        if key in failed:
            continue
        benchmark = benchmarks[step.benchmark]
        progress(_progress_text(benchmark, step, time_left(steps[position:], taken)))
        begun = time.monotonic()
        try:
            values = step.contestant.measure()
        except Exception as error:
            if step.contestant.name in (OURS, LIMIT):
                raise
            warn(f"{step.contestant.name} failed and is left out: {error}")
            failed.add(key)
            for figure in benchmark.figures:
                samples[figure.id].pop(step.contestant.name, None)
            continue
        taken[key] = time.monotonic() - begun
        for figure_id, value in values.items():
            samples[figure_id].setdefault(step.contestant.name, []).append(value)
    return samples


def _progress_text(benchmark: Benchmark, step: Step, left: float) -> str:
    minutes, seconds = divmod(round(left), 60)
    return (
        f"{benchmark.figures[0].id}, round {step.round + 1} of {benchmark.rounds}: "
        f"{step.contestant.name}; about {minutes}:{seconds:02} left"
    )
