"""`drumline worker drain`: have a worker finish its running tasks, return the others, and end.

The supervisor then starts it again, with new code and fresh memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import click

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Type
from drumline.commands.worker.list import find_on_this_node
from drumline.errors import NotReachable

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class WorkerDraining(Answer, frozen=True, kw_only=True):
    """The worker that is asked to drain."""

    worker: str
    keeper: int
    state: Literal["draining"]


class WorkerDrain(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "worker.drain"

    worker: Type
    """The name of a worker of this node."""

    def change(self, tx: Tx, context: Context) -> WorkerDraining:
        keeper = find_on_this_node(tx, context, self.worker)
        return WorkerDraining(worker=keeper.name, keeper=keeper.id, state="draining")

    def after_commit(self, context: Context, answer: WorkerDraining) -> None:
        # A repeated request must not drain the worker that has replaced this one.
        workers = context.dispatcher.worker_statuses()
        if any(worker.keeper == answer.keeper for worker in workers):
            context.dispatcher.drain_worker(self.worker)
        elif not any(worker.name == self.worker for worker in workers):
            raise NotReachable(what=f"Worker {self.worker}", reason="the dispatcher has lost it")


@groups.worker.command("drain", epilog="drumline worker drain worker-2")
@click.argument("worker", metavar="NAME", type=option_types.TYPE)
@option_types.request_id
def drain(worker: str, request_id: str | None) -> None:
    """Have a worker of this node finish its running tasks and restart."""
    answer = gateway.change("worker.drain", {"worker": worker}, request_id)
    output.print_result(answer, f"{worker}: draining")
