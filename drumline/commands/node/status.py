"""`drumline status`: the processes of this node. Needs no gateway."""

from __future__ import annotations

from typing import ClassVar

from drumline.cli import groups, output
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import Context, QueryCommand
from drumline.node.run_dir import Process

COLUMNS = ("name", "state", "pid", "up", "memory")
NOT_RUNNING_EXIT_CODE = 3


class NodeState(Answer, frozen=True, kw_only=True):
    """Whether a node is ready for work, and its processes."""

    version: str
    node: str
    region: str
    ready: bool
    missing: list[str]
    """Why the node is not ready."""
    processes: list[Process]


class NodeStatus(QueryCommand, frozen=True, kw_only=True):
    """Show whether this node is ready for work, and its processes."""

    name: ClassVar[str] = "node.status"

    def answer(self, context: Context) -> NodeState:
        from importlib.metadata import version

        from drumline.node import readiness, run_dir

        missing = readiness.missing(context)
        return NodeState(
            version=version("drumline"),
            node=context.settings.node_name,
            region=context.settings.region,
            ready=not missing,
            missing=missing,
            processes=run_dir.processes(context.settings.run_path),
        )


@groups.root.command("status", epilog="drumline status\ndrumline status --json")
def status() -> int:
    """List the processes of this node. Exit 3 if none is running."""
    from drumline import config
    from drumline.node import run_dir

    path = config.load().run_path
    processes = run_dir.processes(path)
    nothing = f"Nothing is running in {path}; start it with `drumline up`."
    output.print_table(processes, COLUMNS, map(format_process, processes), nothing)
    return 0 if any(process.is_alive for process in processes) else NOT_RUNNING_EXIT_CODE


def format_process(process: Process) -> tuple[str, str, int | None, str | None, str | None]:
    """The cells of a process in a table."""
    return (
        process.name,
        process.state,
        process.pid,
        None if process.uptime is None else output.duration(process.uptime),
        None if process.memory_mb is None else f"{process.memory_mb:.0f} MB",
    )
