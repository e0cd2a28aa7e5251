"""A gateway without sockets: tests run commands with it, on a dispatcher that records requests."""

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


class StubGateway:
    """Runs commands as the gateway does, and records the requests to its dispatcher."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.requests: list[tuple[str, str, int]] = []
        self.queue = QueueStatus(length=0, capacity=10, pool_size=1, free_workers=1)
        self.workers: tuple[WorkerStatus, ...] = ()
        self.reachable = True
        self.notifications = 0
        self.offered_tasks: list[DueTask] = []
        self.context = Context(
            Settings(region=REGION, node=NODE), database, self, self.notify_scanner, actor="tester"
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
        self.requests.append((request, name, task_id))

    def change_queue(self, **changes: int) -> None:
        self.queue = msgspec.structs.replace(self.queue, **changes)

    def notify_scanner(self, due_tasks: Sequence[DueTask] = ()) -> None:
        self.notifications += 1
        self.offered_tasks += due_tasks

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


def submitted(gateway: StubGateway, count: int = 3, **arguments: Any) -> int:
    about = {"batch_name": "june", "type": SPEC.type, "count": count} | arguments
    return int(gateway("batch.submit", **about)["batch_id"])


def outcome(work: Callable[[], dict[str, Any]]) -> dict[str, Any] | DrumlineError:
    try:
        return work()
    except DrumlineError as error:
        return error


def loading(gateway: StubGateway, count: int = 3) -> int:
    batch_id = int(gateway("batch.open", batch_name="june", type=SPEC.type)["batch_id"])
    gateway("batch.load", batch_id=batch_id, count=count)
    return batch_id
