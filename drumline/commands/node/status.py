"""`drumline status`: every process of this node, whether or not the gateway answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from drumline.cli import groups, terminal
from drumline.command_layer.base import Context, QueryCommand

if TYPE_CHECKING:
    from drumline.node.run_dir import Process

COLUMNS = ("name", "state", "pid", "up", "memory")
NOTHING_RUNS = 3


class NodeStatus(QueryCommand, frozen=True, kw_only=True):
    """This node: whether it can do work, what is missing if not, and its processes."""

    name: ClassVar[str] = "node.status"

    def answer(self, context: Context) -> dict[str, Any]:
        from importlib.metadata import version

        from drumline.node import readiness, run_dir

        missing = readiness.missing(context)
        return {
            "version": version("drumline"),
            "node": context.settings.node_name,
            "region": context.settings.region,
            "ready": not missing,
            "missing": missing,
            "processes": run_dir.processes(context.settings.run_path),
        }


@groups.root.command("status", epilog="drumline status\ndrumline status --json")
def status() -> int:
    """List the processes of this node. Exit code 3 if nothing runs."""
    from drumline import config
    from drumline.node import run_dir

    path = config.load().run_path
    found = run_dir.processes(path)
    nothing = f"Nothing runs in {path}; start it with `drumline up`."
    terminal.table(found, COLUMNS, map(row, found), nothing)
    return 0 if any(process.is_alive for process in found) else NOTHING_RUNS


def row(process: Process) -> tuple[str, str, int | None, str | None, str | None]:
    """A process as people read it."""
    return (
        process.name,
        process.state,
        process.pid,
        None if process.uptime is None else duration(process.uptime),
        None if process.memory_mb is None else f"{process.memory_mb:.0f} MB",
    )


def duration(seconds: float) -> str:
    """A time span in its two largest units."""
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {whole % 60} s"
    return f"{whole} s"
