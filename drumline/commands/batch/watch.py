"""`drumline batch watch`: follow a batch until it has finished."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

import click

from drumline.cli import gateway, groups, output, progress
from drumline.cli.progress import ProgressReport
from drumline.commands.batch.show import format_counts
from drumline.domain.states import FINISHED

if TYPE_CHECKING:
    from drumline.client.client import Client

UNDER_WAY = ("running", "rollback_running", "waiting_callback")
RATE_SECONDS = 10.0
"""The period over which the rate is computed."""


@groups.batch.command(
    "watch",
    epilog="""
        drumline batch watch 12
        drumline batch watch 12 && echo succeeded
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
def watch(batch_id: int) -> int:
    """Follow a batch until it has finished. Exit 1 unless it, or its rollback, succeeded."""
    with gateway.connect() as client:
        return follow_to_end(client, batch_id, {})


def answer_or_follow(batch_id: int, answer: dict[str, Any], words: str, watch: bool) -> int:
    """Print the answer, at once or when the batch has finished. Returns the exit code."""
    if not watch:
        output.print_result(answer, words)
        return 0
    output.print_note(words)
    with gateway.connect() as client:
        return follow_to_end(client, batch_id, answer)


def follow_to_end(client: Client, batch_id: int, answer: dict[str, Any]) -> int:
    """Follow a batch and print its result. Returns the exit code."""
    follower = BatchFollower()
    ended = progress.follow(
        lambda: client.call("batch.show", batch_id=batch_id),
        follower.report,
        lambda batch: batch["finished"],
    )
    words = f"batch {batch_id}: {output.coloured(ended['status'])}, {format_counts(ended)}"
    output.print_result(answer | ended, words)
    wanted = "rollback_success" if follower.is_rollback else "success"
    return 0 if ended["status"] == wanted else 1


class BatchFollower:
    """Reports the progress of a batch."""

    def __init__(self) -> None:
        self.is_rollback = False
        self._finished: deque[tuple[float, int]] = deque()

    def report(self, batch: dict[str, Any]) -> ProgressReport:
        counts, status = batch["counts"], batch["status"]
        if not self._finished:
            self.is_rollback = status.startswith("rollback")
        done = sum(n for state, n in counts.items() if state in FINISHED)
        failed = counts.get("fail", 0) + counts.get("rollback_fail", 0)
        running = sum(counts.get(state, 0) for state in UNDER_WAY)
        rate = self.rate(done, time.monotonic())
        left = None if rate is None or batch["finished"] else (batch["total"] - done) / rate
        return ProgressReport(
            title=f"batch {batch['id']} {status}",
            status=status,
            total=batch["total"],
            done=done,
            amount=f"{done}/{batch['total']}",
            line=f"batch {batch['id']}: {status}, {done} of {batch['total']} done, "
            f"{failed} failed, {running} running",
            failed=f"{failed} failed" if failed else "",
            running=f"{running} running" if running else "",
            pace=progress.pace(rate, left),
        )

    def rate(self, done: int, now: float) -> float | None:
        """Tasks finished per second; None if none has finished."""
        if self._finished and done < self._finished[-1][1]:
            self._finished.clear()  # a retry or a rollback began
        self._finished.append((now, done))
        while now - self._finished[0][0] > RATE_SECONDS and len(self._finished) > 2:
            self._finished.popleft()
        then, before = self._finished[0]
        return (done - before) / (now - then) if done > before else None
