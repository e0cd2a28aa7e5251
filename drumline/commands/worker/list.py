"""`drumline worker list`: the workers of this region, and what those of this node are doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from drumline.cli import groups, terminal
from drumline.command_layer import store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import iso
from drumline.errors import Conflict, NotFound, NotReachable

if TYPE_CHECKING:
    from sqlalchemy import Row

    from drumline.domain.dispatch.status import WorkerStatus
    from drumline.store.tx import Tx


class WorkerList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "worker.list"

    def answer(self, context: Context) -> dict[str, Any]:
        region = context.settings.region
        keepers = context.db.read(lambda tx: store.keepers.alive(tx, region))
        seen = _seen(context)
        rows = sorted(keepers, key=lambda row: (row.node, len(row.name), row.name, row.id))
        return {"workers": [_described(row, (seen or {}).get(row.id)) for row in rows],
                "dispatcher": seen is not None}  # fmt: skip


def _seen(context: Context) -> dict[int, WorkerStatus] | None:
    """What this node's dispatcher says of its workers, by keeper."""
    try:
        return {worker.keeper: worker for worker in context.dispatcher.worker_statuses()}
    except NotReachable:
        return None


def _described(row: Row[Any], seen: WorkerStatus | None) -> dict[str, Any]:
    return {
        "name": row.name,
        "node": row.node,
        "pid": row.pid,
        "keeper": row.id,
        "state": "alive" if seen is None else seen.state,
        "holds": None if seen is None else seen.holds,
        "tasks": [] if seen is None else list(seen.tasks),
        "started_at": iso(row.started_at),
        "last_heartbeat": iso(row.beat_at),
    }


def on_this_node(tx: Tx, context: Context, name: str) -> Row[Any]:
    """The living worker of this name that can be reached from here, or a clear error."""
    named = [k for k in store.keepers.alive(tx, context.settings.region) if k.name == name]
    here = [keeper for keeper in named if keeper.node == context.settings.node_name]
    if here:
        return max(here, key=lambda keeper: int(keeper.id))
    if named:
        nodes = ", ".join(sorted(keeper.node for keeper in named))
        raise Conflict(reason=f"worker {name} is on node {nodes}: say it there")
    raise NotFound(noun="living worker", id=name)


@groups.worker.command(
    "list",
    epilog="""
        drumline worker list
        drumline worker list --json | jq '.workers[] | select(.state == "free") | .name'
    """,
)
def list_() -> None:
    """List the living workers."""
    found = terminal.ask("worker.list", {})
    rows = [
        (one["name"], one["node"], one["pid"], one["state"], one["holds"], _some(one["tasks"]),
         one["last_heartbeat"])
        for one in found["workers"]
    ]  # fmt: skip
    columns = ("name", "node", "pid", "state", "holds", "tasks", "heartbeat")
    terminal.table(found, columns, rows, nothing="There are no workers.")
    if not found["dispatcher"]:
        terminal.say("The dispatcher does not answer: what they do is not known.")


def _some(tasks: list[int]) -> str:
    shown = ",".join(map(str, tasks[:3]))
    return f"{shown},…" if len(tasks) > 3 else shown
