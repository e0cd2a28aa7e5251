"""The definition of a sweep, and the checks of its fields."""

from __future__ import annotations

import re

import msgspec

from drumline.errors import WrongUse

PARTITION_TARGET_TYPE = "sweep"
"""The target type of tasks that run partitions; their type is the name of the handler."""
HOOK_TARGET_TYPE = "sweep.hook"
"""The target type of tasks that run the create and prepare hooks."""

LONGEST_NAME = 128
LARGEST_TOTAL = 2**63 - 1
LARGEST_RATE = 1_000_000.0
SMALLEST_RATE = 0.001
LARGEST_PARALLEL = 10_000
LARGEST_PARTITIONS = 1_024


class SweepDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep as an operator defines it. Invalid values are refused, with their field."""

    name: str
    type: str
    total: int | None = None
    items: str | None = None
    """A file or URL with one item per line, instead of a total."""
    rate: float | None = None
    """Items per second of the whole sweep; None: no limit."""
    parallel: int | None = None
    """Concurrent items of the whole sweep; None: the default of the runner."""
    errors: int | None = None
    """The error budget; None: errors never stop the sweep."""
    partitions: int = 1

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_text("type", self.type)
        if (self.total is None) == (self.items is None):
            raise _wrong("total", "give either a total or items, not both")
        if self.items is not None:
            _check_text("items", self.items)
        _check_count("total", self.total, 1, LARGEST_TOTAL)
        _check_count("partitions", self.partitions, 1, LARGEST_PARTITIONS)
        check_rate(self.rate)
        check_parallel(self.parallel, self.partitions)
        check_errors(self.errors)
        if self.total is not None and self.partitions > self.total:
            raise _wrong("partitions", f"{self.partitions} are more than the {self.total} items")


def check_name(name: object) -> None:
    _check_text("name", name)
    text = str(name)
    if len(text) > LONGEST_NAME:
        raise _wrong("name", f"{len(text)} characters are more than {LONGEST_NAME}")
    if text != text.strip() or not text.isprintable():
        raise _wrong("name", "must not have control characters or spaces at its ends")
    if re.fullmatch(r"[0-9]+", text):
        raise _wrong("name", f"{text!r} would be taken for an id: use a letter")


def check_rate(rate: object) -> None:
    if rate is None:
        return
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise _wrong("rate", f"must be a number, not {rate!r}")
    if not SMALLEST_RATE <= rate <= LARGEST_RATE:  # also refuses nan
        raise _wrong("rate", f"must be from {SMALLEST_RATE:g} to {LARGEST_RATE:,.0f}, not {rate}")


def check_parallel(parallel: int | None, partitions: int) -> None:
    _check_count("parallel", parallel, 1, LARGEST_PARALLEL)
    if parallel is not None and partitions > parallel:
        raise _wrong("parallel", f"{parallel} is less than the {partitions} partitions")


def check_errors(errors: object) -> None:
    _check_count("errors", errors, 0, LARGEST_TOTAL)


def _check_count(field: str, value: object, low: int, high: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(field, f"must be a whole number, not {value!r}")
    if not low <= value <= high:
        raise _wrong(field, f"must be from {low} to {high:,}, not {value}")


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(field, f"must be a text that is not empty, not {value!r}")


def _wrong(field: str, reason: str) -> WrongUse:
    return WrongUse(field=field, reason=f"{reason}.")
