"""What is measured: figures with their targets, and the contestants that are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from bench.peers.peer import PeerSystem

OURS = "ours"
LIMIT = "limit"
OTHER_CHECKOUT = "other checkout"
BEST_PEER = "the best peer"


class FigureTarget(msgspec.Struct, frozen=True):
    """A bound on our value, as a multiple of the limit's or of a peer's value where `of` is set."""

    at_least: bool
    factor: float
    of: str = ""


def at_least(factor: float, of: str = "") -> FigureTarget:
    return FigureTarget(True, factor, of)


def at_most(factor: float, of: str = "") -> FigureTarget:
    return FigureTarget(False, factor, of)


class Figure(msgspec.Struct, frozen=True):
    """One line of the table. Without targets it is shown for information."""

    id: str
    title: str
    unit: str
    targets: tuple[FigureTarget, ...] = ()
    higher_is_better: bool = False


class Contestant(NamedTuple):
    """One of the systems that are measured in turn."""

    name: str
    """OURS, LIMIT, OTHER_CHECKOUT, or the name of a peer."""
    seconds: float
    """Expected duration of one sample."""
    measure: Callable[[], Mapping[str, float]]
    """Takes one sample: a value for each figure's id."""


class Benchmark(NamedTuple):
    """Figures that the same samples give values for."""

    figures: tuple[Figure, ...]
    contestants: tuple[Contestant, ...]
    rounds: int


class BenchOptions(NamedTuple):
    """What the command line asks for."""

    quick: bool = False
    peers: tuple[PeerSystem, ...] = ()
    against: Path | None = None
    """Another checkout of Drumline, with its virtual environment."""

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 5


Samples = dict[str, dict[str, list[float]]]
"""The samples by figure and contestant."""
