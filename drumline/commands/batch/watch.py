"""`drumline batch watch`: follow a batch to its end."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from drumline.cli import groups, terminal
from drumline.commands.batch.show import tally
from drumline.domain.states import FINISHED
from drumline.errors import NotReachable

if TYPE_CHECKING:
    from drumline.cli.terminal import Door

LOOKS = (0.05, 0.5)
"""Seconds between two looks: at first, and later."""
UNDER_WAY = ("running", "rollback_running", "waiting_callback")
RATE_SECONDS = 10.0
LINE_SECONDS = 10.0
PATIENCE = 60.0
"""Seconds that a gateway may be away while someone watches."""


@groups.batch.command(
    "watch",
    epilog="""
        drumline batch watch 12
        drumline batch watch 12 && echo all well
    """,
)
@click.argument("batch_id", metavar="ID", type=groups.ID)
def watch(batch_id: int) -> int:
    """Follow a batch until it is finished. Exit 1 unless it is a success.

    Of a batch that is being rolled back, the rollback is to be one.
    """
    with terminal.door() as door:
        return follow_to_end(door, batch_id, {})


def told(batch_id: int, done: dict[str, Any], words: str, watch: bool) -> int:
    """Answer a command that set a batch going: at once, or when the batch is finished."""
    if not watch:
        terminal.answer(done, words)
        return 0
    terminal.say(words)
    with terminal.door() as door:
        return follow_to_end(door, batch_id, done)


def follow_to_end(door: Door, batch_id: int, done: dict[str, Any]) -> int:
    """Follow a batch, say what it came to, and make an exit code of it."""
    first = _look(door, batch_id)
    ended = follow(door, batch_id)
    words = f"batch {batch_id}: {terminal.coloured(ended['status'])}, {tally(ended)}"
    terminal.answer(done | ended, words)
    wanted = "rollback_success" if first["status"].startswith("rollback") else "success"
    return 0 if ended["status"] == wanted else 1


def follow(door: Door, batch_id: int) -> dict[str, Any]:
    """Look at a batch again and again and show how it goes. Returns what it came to."""
    pace = Pace()
    interval, longest = LOOKS
    with _view() as view:
        while True:
            found = _look(door, batch_id)
            view.show(found, pace.observe(found, time.monotonic()))
            if found["finished"]:
                return found
            time.sleep(interval)
            interval = min(interval * 1.5, longest)


def _look(door: Door, batch_id: int) -> dict[str, Any]:
    """A gateway that is restarted meanwhile is waited for."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return door.call("batch.show", {"batch_id": batch_id})
        except NotReachable:
            if time.monotonic() > end:
                raise
            time.sleep(LOOKS[1])


class BatchProgress(msgspec.Struct, frozen=True):
    """How far a batch is."""

    total: int
    done: int
    failed: int
    running: int
    rate: float | None
    """Tasks finished in a second, of late."""

    @property
    def eta(self) -> float | None:
        """Seconds until the end, if it goes on like this."""
        return (self.total - self.done) / self.rate if self.rate else None


class Pace:
    """How fast a batch goes, by what was seen of it in the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def observe(self, found: dict[str, Any], now: float) -> BatchProgress:
        counts = found["counts"]
        done = sum(n for state, n in counts.items() if state in FINISHED)
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # a retry or a rollback began
        self._seen.append((now, done))
        while now - self._seen[0][0] > RATE_SECONDS and len(self._seen) > 2:
            self._seen.popleft()
        then, before = self._seen[0]
        return BatchProgress(
            total=found["total"],
            done=done,
            failed=counts.get("fail", 0) + counts.get("rollback_fail", 0),
            running=sum(counts.get(state, 0) for state in UNDER_WAY),
            rate=(done - before) / (now - then) if done > before else None,
        )


class View(Protocol):
    def __enter__(self) -> View: ...

    def __exit__(self, *error: object) -> None: ...

    def show(self, found: dict[str, Any], progress: BatchProgress) -> None: ...


def _view() -> View:
    return Bar() if sys.stderr.isatty() else Lines()


class Lines:
    """For logs: a line when the status changes, and now and then."""

    def __init__(self) -> None:
        self._status = ""
        self._next = 0.0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, found: dict[str, Any], progress: BatchProgress) -> None:
        now = time.monotonic()
        if found["status"] != self._status or now >= self._next:
            self._status, self._next = found["status"], now + LINE_SECONDS
            terminal.say(
                f"batch {found['id']}: {found['status']}, {progress.done} of {progress.total} "
                f"done, {progress.failed} failed, {progress.running} running"
            )


class Bar:
    """For a terminal: a live bar."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._progress = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("[red]{task.fields[failed]}"),
            TextColumn("[cyan]{task.fields[running]}"),
            TextColumn("{task.fields[pace]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, failed="", running="", pace="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show(self, found: dict[str, Any], progress: BatchProgress) -> None:
        pace = f"{progress.rate:,.0f}/s" if progress.rate and progress.rate >= 10 else ""
        if progress.rate and progress.rate < 10:
            pace = f"{progress.rate:.1f}/s"
        if progress.eta is not None and not found["finished"]:
            pace += f", {terminal.span(progress.eta)} left"
        self._progress.update(
            self._task,
            description=f"batch {found['id']} {found['status']}",
            total=progress.total,
            completed=progress.done,
            failed=f"{progress.failed} failed" if progress.failed else "",
            running=f"{progress.running} running" if progress.running else "",
            pace=pace,
        )
