"""From samples to results: medians, spreads, ratios within a round, and whether a target is met."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from bench.figure import BEST_PEER, LIMIT, OTHER_CHECKOUT, OURS, Figure, FigureTarget


class Result(msgspec.Struct, frozen=True):
    """One line of the table. `ours`, `limit` and the peers' values are medians."""

    id: str
    title: str
    ours: float
    unit: str
    peers: dict[str, float]
    limit: float | None
    ratio: float | None
    """Ours over the limit: the median of the ratios within each round."""
    spread: dict[str, tuple[float, float]]
    """The lowest and the highest sample of each contestant, and of the ratio."""
    target: str
    met: bool | None
    """None: there is no target, or what it compares with was not measured."""


def result_of(figure: Figure, samples: Mapping[str, Sequence[float]]) -> Result:
    """The result of a figure from the samples of its contestants, one a round each."""
    ratios = ratios_by_round(samples[OURS], samples.get(LIMIT, ()))
    spread = {name: spread_of(values) for name, values in samples.items()}
    return Result(
        id=figure.id,
        title=figure.title,
        ours=statistics.median(samples[OURS]),
        unit=figure.unit,
        peers={n: statistics.median(v) for n, v in samples.items() if n not in (OURS, LIMIT)},
        limit=statistics.median(samples[LIMIT]) if LIMIT in samples else None,
        ratio=statistics.median(ratios) if ratios else None,
        spread=spread | ({"ratio": spread_of(ratios)} if ratios else {}),
        target=", ".join(target_text(target) for target in figure.targets),
        met=all_met([is_met(figure, target, samples) for target in figure.targets]),
    )


def spread_of(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def ratios_by_round(ours: Sequence[float], other: Sequence[float]) -> list[float]:
    """The machine's speed changes between rounds, so samples of one round are compared."""
    return [
        mine / theirs if theirs else math.inf for mine, theirs in zip(ours, other, strict=False)
    ]


def is_met(
    figure: Figure, target: FigureTarget, samples: Mapping[str, Sequence[float]]
) -> bool | None:
    """Whether our value meets a target; None if what it compares with was not measured."""
    if target.of == "":
        values = list(samples[OURS])
    else:
        other = best_peer(figure, samples) if target.of == BEST_PEER else target.of
        values = ratios_by_round(samples[OURS], samples.get(other or "", ()))
    if not values:
        return None
    value = statistics.median(values)
    return value >= target.factor if target.at_least else value <= target.factor


def best_peer(figure: Figure, samples: Mapping[str, Sequence[float]]) -> str | None:
    others = (OURS, LIMIT, OTHER_CHECKOUT)
    peers = {n: statistics.median(v) for n, v in samples.items() if n not in others}
    if not peers:
        return None
    choose = max if figure.higher_is_better else min
    return choose(peers, key=lambda name: peers[name])


def all_met(answers: Sequence[bool | None]) -> bool | None:
    """False if a target is missed; None if one could not be judged, or there is none."""
    if False in answers:
        return False
    return None if not answers or None in answers else True


def target_text(target: FigureTarget) -> str:
    sign = "≥" if target.at_least else "≤"
    return f"{sign} {target.factor:,g}" + (f" x {target.of}" if target.of else "")


def latency_summary(milliseconds: list[float]) -> dict[str, float]:
    """The values of the figures of P3."""
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return {"P3": cuts[49], "P3b": cuts[98], "P3c": cuts[98] / cuts[49]}
