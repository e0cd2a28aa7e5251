"""How a sweep is divided: its items, its rate and its parallel items over partitions and nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from drumline.errors import WrongUse


class PartitionRange(NamedTuple):
    """The indexes [first, end) of one partition."""

    first: int
    end: int


def split_into_partitions(first: int, end: int, partitions: int) -> list[PartitionRange]:
    """Cut [first, end) into contiguous parts whose sizes differ by one at most."""
    total = end - first
    if not 1 <= partitions <= total:
        reason = f"{total} items cannot be cut into {partitions} partitions."
        raise WrongUse(field="partitions", reason=reason)
    edges = [first + total * n // partitions for n in range(partitions + 1)]
    return [PartitionRange(low, high) for low, high in pairwise(edges)]


def share_of_rate(rate: float | None, running: int) -> float | None:
    """What each of the partitions that run now may do of the sweep's rate."""
    return None if rate is None else rate / max(1, running)


def share_of_parallel(parallel: int, partitions: int, number: int) -> int:
    """How many items partition `number` may run at a time: the shares add up to the whole."""
    return parallel * (number + 1) // partitions - parallel * number // partitions


def node_partition_limit(setting: int, running: int, live_nodes: int) -> int:
    """How many sweeps one node may run: its even share, rounded up, and never more than set."""
    return min(setting, -(-running // max(1, live_nodes)))
