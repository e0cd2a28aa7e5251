"""The faults of a run, planned from its seed: the same seed gives the same plan."""

from __future__ import annotations

import random
from collections.abc import Collection

import msgspec

PROCESSES = ("scanner", "dispatcher", "worker", "runner", "ticker", "reaper", "gateway")
DATABASES = ("sqlite", "mariadb")


class PlannedFault(msgspec.Struct, frozen=True):
    at: float
    """Seconds after the start of the workload."""
    kind: str
    seconds: float = 0.0


KINDS: dict[str, tuple[tuple[float, float], tuple[str, ...]]] = {
    **{f"kill-{process}": ((0.0, 0.0), DATABASES) for process in PROCESSES},
    **{f"stop-{process}": ((1.0, 6.0), DATABASES) for process in PROCESSES},
    "kill-pair": ((0.0, 0.0), DATABASES),
    "kill-node": ((0.0, 0.0), DATABASES),
    "long-runs": ((14.0, 17.0), DATABASES),
    "remove-handler": ((20.0, 25.0), DATABASES),
    "lock-batches": ((12.0, 20.0), ("mariadb",)),
    "lock-database": ((3.0, 8.0), ("sqlite",)),
    "kill-database": ((1.0, 4.0), ("mariadb",)),
    "stop-database": ((2.0, 6.0), ("mariadb",)),
    "cut-database": ((0.0, 4.0), ("mariadb",)),
    "delay-database": ((3.0, 8.0), ("mariadb",)),
    "reset-after-commit": ((3.0, 8.0), ("mariadb",)),
}
"""Every kind of fault, with its shortest and longest duration and the databases it applies to."""


def kinds_for(database: str) -> list[str]:
    return [kind for kind, (_, databases) in KINDS.items() if database in databases]


def plan(
    seed: int, seconds: float, database: str, only: Collection[str] = (), pause: float = 5.0
) -> list[PlannedFault]:
    """Faults one after the other, with a pause of about `pause` seconds after each."""
    chance = random.Random(seed)
    kinds = [kind for kind in kinds_for(database) if not only or kind in only]
    faults: list[PlannedFault] = []
    at = 2.0
    while kinds and at < seconds:
        # Every kind comes once before any comes again.
        for kind in chance.sample(kinds, len(kinds)):
            duration = round(chance.uniform(*KINDS[kind][0]), 1)
            if at + duration >= seconds and faults:
                return faults
            faults.append(PlannedFault(round(at, 1), kind, duration))
            at += duration + chance.uniform(0.5, 1.5) * pause
    return faults
