"""A figure: a measured value and its target."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One line of the table."""

    id: str
    what: str
    ours: float
    unit: str
    target: float
    higher_is_better: bool = True
    peers: dict[str, float] = {}
    limit: float | None = None

    @property
    def met(self) -> bool:
        return self.ours >= self.target if self.higher_is_better else self.ours <= self.target

    def as_dict(self) -> dict[str, object]:
        values: dict[str, object] = msgspec.to_builtins(self)
        return values | {"met": self.met}


Measure = Callable[[bool], list[Figure]]
"""Measures; True asks for the quick form."""
