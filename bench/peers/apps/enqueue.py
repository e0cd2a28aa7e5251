"""`python -m bench.peers.apps.enqueue APP all|one COUNT`: enqueues at once or one by one."""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from pathlib import Path

from bench.peers.apps.witness import FILE_VARIABLE, Enqueue, count_records

PAUSE = 0.05
"""Seconds between two tasks, so that the system is idle again."""
DEADLINE = 60.0


def one_by_one(enqueue: Enqueue, count: int) -> None:
    """Enqueue each task when the one before has run."""
    file = Path(os.environ[FILE_VARIABLE])
    for number in range(1, count + 1):
        enqueue([time.time()])
        until = time.monotonic() + DEADLINE
        while count_records(file) < number:
            if time.monotonic() > until:
                raise TimeoutError(f"task {number} did not run within {DEADLINE:g} s")
            time.sleep(0.002)
        time.sleep(PAUSE)


def main() -> None:
    module, mode, count = sys.argv[1:]
    enqueue: Enqueue = import_module(f"bench.peers.apps.{module}").open_queue()
    if mode == "one":
        one_by_one(enqueue, int(count))
    else:
        enqueue([0.0] * int(count))


if __name__ == "__main__":
    main()
