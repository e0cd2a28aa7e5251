"""The division of a sweep's items, rate and concurrency among its partitions, and of these among
nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from drumline.errors import WrongUse


class PartitionRange(NamedTuple):
    """The indexes [first, end) of one partition."""

    first: int
    end: int


def split_into_partitions(first: int, end: int, partitions: int) -> list[PartitionRange]:
    """Split [first, end) into contiguous ranges whose sizes differ by at most one."""
    total = end - first
    if not 1 <= partitions <= total:
        reason = f"{total} items cannot be cut into {partitions} partitions."
        raise WrongUse(field="partitions", reason=reason)
    edges = [first + total * n // partitions for n in range(partitions + 1)]
    return [PartitionRange(low, high) for low, high in pairwise(edges)]


def share_of_rate(rate: float | None, running: int) -> float | None:
    """The rate of each running partition."""
    return None if rate is None else rate / max(1, running)


def share_of_parallel(parallel: int, partitions: int, number: int) -> int:
    """The number of concurrent items of partition `number`; the shares add up to `parallel`."""
    return parallel * (number + 1) // partitions - parallel * number // partitions


def node_partition_limit(setting: int, running: int, live_nodes: int) -> int:
    """The number of partitions that one node may run: its even share, at most the setting."""
    return min(setting, -(-running // max(1, live_nodes)))
