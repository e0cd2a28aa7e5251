"""`drumline worker kill`: end a worker and its runner with SIGKILL.

The reaper returns the worker's tasks to the queue; those that had started are charged with a death.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Type
from drumline.commands.worker.list import find_on_this_node
from drumline.errors import Conflict

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class WorkerKilled(Answer, frozen=True, kw_only=True):
    """The worker and its process."""

    worker: str
    keeper: int
    pid: int
    pid_started: int
    """The start time of the process in clock ticks, which tells it from a later one with its id."""


class WorkerKill(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "worker.kill"

    worker: Type
    """The name of a worker of this node."""

    def change(self, tx: Tx, context: Context) -> WorkerKilled:
        keeper = find_on_this_node(tx, context, self.worker)
        return WorkerKilled(
            worker=keeper.name,
            keeper=keeper.id,
            pid=keeper.pid,
            pid_started=keeper.pid_started,
        )

    def after_commit(self, context: Context, answer: WorkerKilled) -> None:
        from drumline.system import processes

        try:
            # A repeated request finds this process gone and kills no other.
            processes.kill_if_same(answer.pid, answer.pid_started)
        except PermissionError:
            raise Conflict(
                reason=f"the gateway may not kill process {answer.pid}: it belongs to another user"
            ) from None


@groups.worker.command("kill", epilog="drumline worker kill worker-2")
@click.argument("worker", metavar="NAME", type=option_types.TYPE)
@option_types.request_id
def kill(worker: str, request_id: str | None) -> None:
    """Kill a worker of this node. Its tasks run again."""
    answer = gateway.change("worker.kill", {"worker": worker}, request_id)
    output.print_result(answer, f"{worker}: process {answer['pid']} killed")
