"""`drumline worker drain`: a worker finishes what runs, gives back the rest, and ends.

The supervisor then starts it anew: with new code, and with an empty memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import click

from drumline.cli import groups, terminal
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Type
from drumline.commands.worker.list import on_this_node
from drumline.errors import NotReachable

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class WorkerDrain(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "worker.drain"

    worker: Type

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        keeper = on_this_node(tx, context, self.worker)
        return {"worker": keeper.name, "keeper": keeper.id, "state": "draining"}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        # Sent again for the same request, it must not drain the one that came after.
        workers = context.dispatcher.worker_statuses()
        if any(worker.keeper == answer["keeper"] for worker in workers):
            context.dispatcher.drain_worker(self.worker)
        elif not any(worker.name == self.worker for worker in workers):
            raise NotReachable(what=f"Worker {self.worker}", reason="the dispatcher misses it")


@groups.worker.command("drain", epilog="drumline worker drain worker-2")
@click.argument("worker", metavar="NAME", type=terminal.TYPE)
@terminal.changes
def drain(worker: str, request_id: str | None) -> None:
    """Have a worker of this node finish what runs and start anew."""
    done = terminal.change("worker.drain", {"worker": worker}, request_id)
    terminal.answer(done, f"{worker}: draining")
