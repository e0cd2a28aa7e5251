"""Progress on stderr: a live bar on a terminal, some lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from drumline.cli import output

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 10.0
"""In a log, a line for each change of status and one in this time."""

State = dict[str, Any]


class ProgressReport(msgspec.Struct, frozen=True):
    """How far a batch or a sweep is, in words."""

    title: str
    status: str
    total: int | None
    done: int
    amount: str
    """Beside the bar: how much is done."""
    line: str
    """All of it in one line, for logs."""
    failed: str = ""
    running: str = ""
    pace: str = ""


def follow(
    read: Callable[[], State],
    describe: Callable[[State], ProgressReport],
    is_finished: Callable[[State], object],
) -> State:
    """Read something until it has finished, show its progress, and return its last state."""
    from drumline.client.polling import poll

    with ProgressBar() if sys.stderr.isatty() else ProgressLines() as view:
        for state in poll(read):
            view.show(describe(state))
            if is_finished(state):
                break
    return state


def pace(rate: float | None, seconds_left: float | None) -> str:
    """The rate in a second and the time that is left, as far as they are known."""
    words = []
    if rate is not None:
        words.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
    if seconds_left is not None:
        words.append(f"{output.duration(seconds_left)} left")
    return ", ".join(words)


class ProgressLines:
    """For logs."""

    def __init__(self) -> None:
        self._status = ""
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def show(self, report: ProgressReport) -> None:
        now = time.monotonic()
        if report.status != self._status or now >= self._next:
            self._status, self._next = report.status, now + LINE_SECONDS
            output.print_note(report.line)


class ProgressBar:
    """For terminals."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[amount]}"),
            TextColumn("[red]{task.fields[failed]}"),
            TextColumn("[cyan]{task.fields[running]}"),
            TextColumn("{task.fields[pace]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(
            "", total=None, amount="", failed="", running="", pace=""
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, report: ProgressReport) -> None:
        self._progress.update(
            self._task,
            description=report.title,
            total=report.total,
            completed=report.done,
            amount=report.amount,
            failed=report.failed,
            running=report.running,
            pace=report.pace,
        )


@contextmanager
def loading_bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with what is done; a terminal shows a bar from the first call."""
    progress: Progress | None = None

    def show(done: int) -> None:
        nonlocal progress
        if progress is None:
            from rich.console import Console
            from rich.progress import Progress

            progress = Progress(console=Console(stderr=True), transient=True)
            progress.add_task(title, total=total)
            progress.start()
        progress.update(progress.task_ids[0], completed=done)

    try:
        yield show if sys.stderr.isatty() else lambda done: None
    finally:
        if progress is not None:
            progress.stop()
