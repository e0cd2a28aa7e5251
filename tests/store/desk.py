"""Commands as the tests give them: a desk that has them done, and what is submitted at it."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import func, select

from drumline import commands
from drumline.client.control import new_request_id
from drumline.commands import Context
from drumline.config import Settings
from drumline.domain.dispatch.status import QueueStatus, WorkerStatus
from drumline.domain.policy import HandlerSpec
from drumline.domain.task import DueTask
from drumline.errors import DrumlineError, NotReachable
from drumline.store.database import Database
from tests.store.world import REGION, SPEC

NODE = "node"
UNDOES = HandlerSpec("target", "undoes", captures=True, rolls_back=True)
STRICT = HandlerSpec(
    "target",
    "strict",
    schema={
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}},
        "required": ["n"],
    },
)


class Desk:
    """A door with all commands behind it, and a dispatcher that notes what it is asked."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.asked: list[tuple[str, str, int]] = []
        self.queue = QueueStatus(length=0, capacity=10, pool_size=1, free_workers=1)
        self.workers: tuple[WorkerStatus, ...] = ()
        self.reachable = True
        self.rings = 0
        self.offered: list[DueTask] = []
        self.context = Context(
            Settings(region=REGION, node=NODE), database, self, self.ring, actor="tester"
        )

    def queue_status(self) -> QueueStatus:
        self._record("queue")
        return self.queue

    def worker_statuses(self) -> tuple[WorkerStatus, ...]:
        self._record("workers")
        return self.workers

    def drain_worker(self, name: str, /) -> bool:
        self._record("drain", name)
        return True

    def kill_task(self, task_id: int, /) -> bool:
        self._record("kill", task_id=task_id)
        return True

    def _record(self, request: str, name: str = "", task_id: int = 0) -> None:
        if not self.reachable:
            raise NotReachable(what="The dispatcher", reason="it does not answer")
        self.asked.append((request, name, task_id))

    def change_queue(self, **changes: int) -> None:
        self.queue = msgspec.structs.replace(self.queue, **changes)

    def ring(self, dues: Sequence[DueTask] = ()) -> None:
        self.rings += 1
        self.offered += dues

    def __call__(
        self, command_name: str, request_id: str | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        command = commands.read(commands.by_name(command_name), arguments)
        answer = commands.run_command(command, request_id or new_request_id(), self.context)
        sent: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(answer))
        return sent

    def count(self, table: Any) -> int:
        return self.database.read(
            lambda tx: int(tx.execute(select(func.count()).select_from(table)).scalar_one())
        )


def submitted(desk: Desk, count: int = 3, **arguments: Any) -> int:
    about = {"batch_name": "june", "type": SPEC.type, "count": count} | arguments
    return int(desk("batch.submit", **about)["batch_id"])


def outcome(work: Callable[[], dict[str, Any]]) -> dict[str, Any] | DrumlineError:
    try:
        return work()
    except DrumlineError as error:
        return error


def loading(desk: Desk, count: int = 3) -> int:
    batch_id = int(desk("batch.open", batch_name="june", type=SPEC.type)["batch_id"])
    desk("batch.load", batch_id=batch_id, count=count)
    return batch_id
