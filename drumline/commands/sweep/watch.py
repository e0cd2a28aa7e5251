"""`drumline sweep watch`: follow a sweep until it is finished or stands."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

import click

from drumline.cli import groups, terminal
from drumline.commands.sweep.show import said
from drumline.domain.sweeps.sweep import ACTIVE, LONGEST_NAME
from drumline.errors import NotReachable

if TYPE_CHECKING:
    from drumline.cli.terminal import Door

LOOKS = (0.1, 0.5)
"""Seconds between two looks: at first, and later."""
LINE_SECONDS = 10.0
PATIENCE = 60.0
"""Seconds that a gateway may be away while someone watches."""


@groups.sweep.command(
    "watch",
    epilog="""
        drumline sweep watch june
        drumline sweep watch 12 && echo all done
    """,
)
@click.argument("sweep", metavar="SWEEP", type=terminal.text(LONGEST_NAME))
def watch(sweep: str) -> int:
    """Follow a sweep until it is finished, stopped or refused. Exit 1 unless it is finished."""
    return follow_to_end(sweep)


def follow_to_end(sweep: str) -> int:
    """Follow a sweep, say what it came to, and make an exit code of it."""
    with terminal.door() as door, _view() as view:
        interval, longest = LOOKS
        while True:
            found = _look(door, sweep)
            view.show(found)
            if found["state"] not in ACTIVE:
                break
            time.sleep(interval)
            interval = min(interval * 1.5, longest)
    terminal.answer(found, said(found))
    return 0 if found["state"] == "finished" else 1


def _look(door: Door, sweep: str) -> dict[str, Any]:
    """A gateway that is restarted meanwhile is waited for."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return door.call("sweep.show", {"sweep": sweep})
        except NotReachable:
            if time.monotonic() > end:
                raise
            time.sleep(LOOKS[1])


class View(Protocol):
    def __enter__(self) -> View: ...

    def __exit__(self, *error: object) -> None: ...

    def show(self, found: dict[str, Any]) -> None: ...


def _view() -> View:
    return Bar() if sys.stderr.isatty() else Lines()


def pace(found: dict[str, Any]) -> str:
    """How fast it goes, and until when."""
    speed, eta = found["speed"], found["eta_seconds"]
    words = f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s"
    return words if eta is None else f"{words}, {terminal.span(eta)} left"


class Lines:
    """For logs: a line when the state changes, and now and then."""

    def __init__(self) -> None:
        self._state = ""
        self._next = 0.0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, found: dict[str, Any]) -> None:
        now = time.monotonic()
        if found["state"] != self._state or now >= self._next:
            self._state, self._next = found["state"], now + LINE_SECONDS
            terminal.say(f"{said(found)}, {pace(found)}")


class Bar:
    """For a terminal: a live bar."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>5.1f} %"),
            TextColumn("{task.fields[done]}"),
            TextColumn("[red]{task.fields[errors]}"),
            TextColumn("{task.fields[pace]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, done="", errors="", pace="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show(self, found: dict[str, Any]) -> None:
        self._progress.update(
            self._task,
            description=f"sweep {found['name']} {found['state']}",
            total=found["total"],
            completed=found["done"],
            done=f"{found['done']:,}",
            errors=terminal.counted(found["errors"], "error") if found["errors"] else "",
            pace=pace(found) if found["state"] in ACTIVE else "",
        )
