"""`drumline worker list`: the workers of this region, and the tasks of those of this node."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from drumline.cli import gateway, groups, output
from drumline.command_layer import store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import iso
from drumline.errors import Conflict, NotFound, NotReachable

if TYPE_CHECKING:
    from drumline.domain.dispatch.status import WorkerStatus
    from drumline.store.rows import KeeperRow
    from drumline.store.tx import Tx


class WorkerSummary(Answer, frozen=True, kw_only=True):
    """A worker. Only the workers of this node have `holds` and `tasks`."""

    name: str
    node: str
    pid: int
    keeper: int
    state: str
    """`free`, `busy` or `draining`; `alive` for a worker of another node."""
    holds: int | None
    """The number of tasks that the worker holds."""
    tasks: list[int]
    """The first of these tasks."""
    started_at: Moment
    last_heartbeat: Moment


class WorkerListing(Answer, frozen=True, kw_only=True):
    """The workers of the region."""

    workers: list[WorkerSummary]
    dispatcher: bool
    """Whether this node's dispatcher answers."""


class WorkerList(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "worker.list"

    def answer(self, context: Context) -> WorkerListing:
        region = context.settings.region
        keepers = context.db.read(lambda tx: store.keepers.read_alive(tx, region))
        statuses = _ask_dispatcher(context)
        rows = sorted(keepers, key=lambda row: (row.node, len(row.name), row.name, row.id))
        return WorkerListing(
            workers=[_summarise(row, (statuses or {}).get(row.id)) for row in rows],
            dispatcher=statuses is not None,
        )


def _ask_dispatcher(context: Context) -> dict[int, WorkerStatus] | None:
    """The status of this node's workers by keeper; None if the dispatcher does not answer."""
    try:
        return {worker.keeper: worker for worker in context.dispatcher.worker_statuses()}
    except NotReachable:
        return None


def _summarise(row: KeeperRow, status: WorkerStatus | None) -> WorkerSummary:
    return WorkerSummary(
        name=row.name,
        node=row.node,
        pid=row.pid,
        keeper=row.id,
        state="alive" if status is None else status.state,
        holds=None if status is None else status.holds,
        tasks=[] if status is None else list(status.tasks),
        started_at=iso(row.started_at),
        last_heartbeat=iso(row.beat_at),
    )


def find_on_this_node(tx: Tx, context: Context, name: str) -> KeeperRow:
    """The keeper row of the live worker of this name, which must be on this node."""
    named = [k for k in store.keepers.read_alive(tx, context.settings.region) if k.name == name]
    here = [keeper for keeper in named if keeper.node == context.settings.node_name]
    if here:
        return max(here, key=lambda keeper: int(keeper.id))
    if named:
        nodes = ", ".join(sorted(keeper.node for keeper in named))
        raise Conflict(reason=f"worker {name} is on node {nodes}: run the command there")
    raise NotFound(noun="live worker", id=name)


@groups.worker.command(
    "list",
    epilog="""
        drumline worker list
        drumline worker list --json | jq '.workers[] | select(.state == "free") | .name'
    """,
)
def list_() -> None:
    """List the live workers."""
    listing = gateway.query("worker.list", {})
    rows = [
        (worker["name"], worker["node"], worker["pid"], worker["state"], worker["holds"],
         _format_tasks(worker["tasks"]), worker["last_heartbeat"])
        for worker in listing["workers"]
    ]  # fmt: skip
    columns = ("name", "node", "pid", "state", "holds", "tasks", "heartbeat")
    output.print_table(listing, columns, rows, nothing="There are no workers.")
    if not listing["dispatcher"]:
        output.print_note("The dispatcher does not answer: the tasks of the workers are unknown.")


def _format_tasks(tasks: list[int]) -> str:
    text = ",".join(map(str, tasks[:3]))
    return f"{text},…" if len(tasks) > 3 else text
