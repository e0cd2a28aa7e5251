"""The first thing a newcomer sees: a thousand tasks that come to their end."""

from __future__ import annotations

import time
from typing import Any

from drumline.client.control import Control, new_request_id

TASKS = 1000
TYPE = "demo.noop"
POLL_SECONDS = 0.02
OVER = frozenset({"success", "fail", "partial_fail", "cancel"})


def run(control: Control, patience: float = 60.0) -> dict[str, Any]:
    """Submit the demo batch and show it finish; the batch as it ended."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    began = time.monotonic()
    arguments = {"batch_name": "demo", "type": TYPE, "count": TASKS}
    submitted = control.call("batch.submit", arguments, new_request_id())
    columns = "{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"batch {submitted['batch_id']}", total=submitted["tasks"])
        while True:
            batch = control.call("batch.show", {"batch_id": submitted["batch_id"]})
            done = sum(n for state, n in batch["counts"].items() if state in OVER)
            progress.update(bar, completed=done)
            if done == batch["total"] or time.monotonic() - began > patience:
                return batch | {"seconds": time.monotonic() - began}
            time.sleep(POLL_SECONDS)
