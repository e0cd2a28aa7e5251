"""`drumline top`: a live view of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec

from drumline.cli import groups
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import Context, QueryCommand
from drumline.domain.dispatch.status import QueueStatus, WorkerStatus

if TYPE_CHECKING:
    from rich.console import RenderableType

    from drumline.client.control import Control
    from drumline.config import Settings

REFRESH_SECONDS = 1.0


class NodeFigures(Answer, frozen=True, kw_only=True):
    """The queue, the workers and the backlog of a node."""

    queue: QueueStatus
    workers: list[WorkerStatus]
    batches_unfinished: int
    backlog: dict[str, int]
    """The number of unfinished tasks by state."""


class NodeShow(QueryCommand, frozen=True, kw_only=True):
    """Show the queue, the workers and the backlog of this node."""

    name: ClassVar[str] = "node.show"

    def answer(self, context: Context) -> NodeFigures:
        from drumline.store.task import backlog

        region = context.settings.region
        unfinished, waiting = context.db.read(lambda tx: backlog.count(tx, region), tries=1)
        return NodeFigures(
            queue=context.dispatcher.queue_status(),
            workers=list(context.dispatcher.worker_statuses()),
            batches_unfinished=unfinished,
            backlog={state: n for state, n in waiting.items() if n},
        )


@groups.root.command("top", epilog="drumline top\ndrumline top --once --json")
@click.option("--once", is_flag=True, help="Print the figures once and exit.")
def top(once: bool) -> None:
    """Watch the processes, the queue and its rate. q or Ctrl-C ends it."""
    from drumline import config
    from drumline.client.control import Control

    settings = config.load()
    control = Control(settings.endpoint("control"), timeout=5.0)
    try:
        if groups.wants_json():
            from drumline.node import run_dir

            figures = control.call("node.show", {}) | {
                "processes": run_dir.processes(settings.run_path)
            }
            click.echo(msgspec.json.format(msgspec.json.encode(figures), indent=2))
        else:
            _watch(settings, control, once)
    finally:
        control.close()


def _watch(settings: Settings, control: Control, once: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from drumline.cli.keyboard import Keyboard

    console = Console()
    view = NodeView(settings, control)
    if once or not console.is_terminal:
        console.print(view.draw())
        return
    with (
        Keyboard() as keys,
        Live(view.draw(), console=console, screen=True, auto_refresh=False) as live,
    ):
        while keys.wait(REFRESH_SECONDS) not in ("q", "Q"):
            live.update(view.draw(), refresh=True)


def summarise_node(control: Control) -> str:
    """The figures of the node in one line."""
    from drumline.errors import NotReachable

    try:
        queue = control.call("node.show", {})["queue"]
    except NotReachable as error:
        return str(error).rstrip(".")
    busy = queue["pool_size"] - queue["free_workers"]
    return (
        f"{busy} of {queue['pool_size']} workers busy, {queue['length']:,} tasks queued, "
        f"{queue['finished']:,} finished"
    )


class NodeView:
    """What is drawn. It keeps the last figures to compute their rates."""

    def __init__(self, settings: Settings, control: Control) -> None:
        self._settings = settings
        self._control = control
        self._finished: tuple[float, int] | None = None

    def draw(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from drumline.errors import NotReachable

        try:
            figures: RenderableType = self._figures(self._control.call("node.show", {}))
        except NotReachable as error:
            figures = Text(str(error), "red")
        head = Text(f"Drumline in {self._settings.run_path}", "bold")
        return Group(head, "", figures, "", self._processes())

    def _processes(self) -> RenderableType:
        from rich.table import Table

        from drumline.commands.node.status import COLUMNS, format_process
        from drumline.node import run_dir

        drawn = Table(*COLUMNS, box=None, pad_edge=False, header_style="bold")
        for process in run_dir.processes(self._settings.run_path):
            style = "" if process.state == "running" else "yellow" if process.is_alive else "red"
            drawn.add_row(*(str(cell or "-") for cell in format_process(process)), style=style)
        return drawn

    def _figures(self, figures: dict[str, Any]) -> RenderableType:
        from rich.table import Table

        queue = figures["queue"]
        backlog = (
            ", ".join(f"{n:,} {state}" for state, n in figures["backlog"].items()) or "nothing"
        )
        drawn = Table.grid(padding=(0, 2))
        drawn.add_row("finished", f"{queue['finished']:,}", f"{self._rate(queue['finished'])}")
        drawn.add_row("queue", f"{queue['length']:,} of {queue['capacity']:,}", "")
        busy = queue["pool_size"] - queue["free_workers"]
        drawn.add_row("workers", f"{busy} of {queue['pool_size']} busy", "")
        drawn.add_row("backlog", backlog, f"{figures['batches_unfinished']:,} batches")
        if queue["paused"]:
            drawn.add_row("paused", ", ".join(queue["paused"]), "")
        return drawn

    def _rate(self, finished: int) -> str:
        import time

        now, before = time.monotonic(), self._finished
        self._finished = (now, finished)
        if before is None or finished < before[1]:
            return ""
        return f"{(finished - before[1]) / (now - before[0]):,.0f} a second"
