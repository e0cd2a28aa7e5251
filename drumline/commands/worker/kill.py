"""`drumline worker kill`: end a worker with SIGKILL, and with it what it runs.

What it held is given back by the reaper and runs again; what it had started is charged with a
death.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Type
from drumline.commands.worker.list import on_this_node
from drumline.errors import Conflict

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class WorkerKill(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "worker.kill"

    worker: Type

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        keeper = on_this_node(tx, context, self.worker)
        return {
            "worker": keeper.name,
            "keeper": keeper.id,
            "pid": keeper.pid,
            "pid_started": keeper.pid_started,
        }

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        from drumline.system import processes

        try:
            # Sent again for the same request, it finds that process gone and kills no other.
            processes.kill_if_same(answer["pid"], answer["pid_started"])
        except PermissionError:
            raise Conflict(
                reason=f"the gateway may not kill process {answer['pid']}: it is another user's"
            ) from None


@groups.worker.command("kill", epilog="drumline worker kill worker-2")
@click.argument("worker", metavar="NAME", type=terminal.TYPE)
@terminal.changes
def kill(worker: str, request_id: str | None) -> None:
    """Kill a worker of this node; what it held runs again."""
    done = terminal.change("worker.kill", {"worker": worker}, request_id)
    terminal.answer(done, f"{worker}: process {done['pid']} killed")
