"""The demo of `drumline up --demo`: a thousand tasks that do nothing."""

from __future__ import annotations

import time
from typing import Any

from drumline.client.client import Client
from drumline.client.polling import poll
from drumline.domain.states import FINISHED

TASKS = 1000
TYPE = "demo.noop"


def run(client: Client, timeout: float = 60.0) -> dict[str, Any]:
    """Submit the demo batch and show its progress; returns the batch as it ended."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    began = time.monotonic()
    batch = client.submit_batch("demo", TYPE, count=TASKS)
    columns = "{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"batch {batch.id}", total=TASKS)
        for _ in poll(batch.refresh, timeout):
            done = sum(n for state, n in batch.counts.items() if state in FINISHED)
            progress.update(bar, completed=done)
            if done == batch.total:
                break
    return batch.details | {"seconds": time.monotonic() - began}
