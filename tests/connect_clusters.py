"""Stand-in Connect clusters, and tasks on them whose worker crashes at a given change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from drumline.config.connect_clusters import ConnectCluster
from drumline.domain.states import TaskState
from drumline.domain.task import BatchInfo, DueTask, TaskBody, encode_task_body
from drumline.handlers.base import Handler, RegisteredHandler, handler_specs
from drumline.handlers.connect import operation
from drumline.handlers.connect.client import Connect
from drumline.runner.execute import run_steps_async, task_steps
from drumline.task import Task
from examples.connect_standin.cluster import Manners
from examples.connect_standin.server import Server

T = TypeVar("T")

QUICK = Manners(delay=0.004, rebalance=0.002, events=0.0)


class Crash(BaseException):
    """The worker crashed."""


@dataclass
class StoredCapture:
    """The capture of a task, as the database keeps it over the attempts."""

    before: str | None = None
    after: str | None = None

    @property
    def before_update(self) -> Any:
        return None if self.before is None else msgspec.json.decode(self.before)

    @property
    def after_update(self) -> Any:
        return None if self.after is None else msgspec.json.decode(self.after)


class ClusterSet:
    """Clusters by name: `a` and `b` are azs of one system, `vm` is another system in az a."""

    PLACES: Mapping[str, tuple[str, str]] = {
        "a": ("az-a", "k8s"), "b": ("az-b", "k8s"), "vm": ("az-a", "vm"),
    }  # fmt: skip

    def __init__(self, manners: Manners = QUICK) -> None:
        self.servers = {name: Server(name, manners) for name in self.PLACES}
        self.configured: tuple[ConnectCluster, ...] = ()

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    def snapshot(self) -> dict[str, Any]:
        """The state of all connectors on all servers."""
        return {
            name: {
                each.name: deepcopy((each.config, each.target, each.state, each.offsets))
                for each in server.cluster.connectors.values()
            }
            for name, server in self.servers.items()
        }

    async def run(
        self,
        handler: Handler,
        param: Any = None,
        *,
        target: str = "orders",
        stored: StoredCapture | None = None,
        rollback: bool = False,
        az: str | None = "az-a",
        task_id: int = 7,
    ) -> Any:
        """Run one attempt; its capture is in `stored`, even if it fails."""
        stored = stored or StoredCapture()
        body = TaskBody(
            region="r1", target_id=target, target_name=None, target_env="prod", instance_id=None,
            param=None if param is None else msgspec.json.encode(param).decode(),
            before_update=stored.before, after_update=stored.after,
            batch=msgspec.msgpack.encode(
                BatchInfo(1, "b", handler.types[0], handler.target_type, az=az)
            ),
            run=None,
        )  # fmt: skip
        status = TaskState.ROLLBACK_PENDING if rollback else TaskState.PENDING
        due = DueTask(
            id=task_id, version=1, status=status, type=handler.types[0],
            target_type=handler.target_type, priority=5, due_at=0, timeout_ms=1, batch_id=1,
            attempt=0, retry_time=0, failures=0, deaths=0, env="prod", retry=None, job_id=None,
            body=encode_task_body(body),
        )  # fmt: skip

        def capture(before: str, after: str) -> bool:
            stored.before, stored.after = before, after
            return True

        registered = RegisteredHandler(handler_specs(handler, "test")[0], handler)
        try:
            return await run_steps_async(task_steps(Task(due), registered, capture))
        except Crash:
            await operation.close_connections()
            raise


@asynccontextmanager
async def running_clusters(manners: Manners = QUICK, **settings: Any) -> Any:
    """Start clusters and configure the handlers with them."""
    started = ClusterSet(manners)
    for server in started.servers.values():
        await server.start()
    started.configured = tuple(
        ConnectCluster(
            name=name, url=started[name].url, env="prod", region="r1", az=az, system=system,
            poll=0.003, settle=0.015, **settings,
        )
        for name, (az, system) in started.PLACES.items()
    )  # fmt: skip
    os.environ["DRUMLINE_CONNECT"] = msgspec.json.encode(started.configured).decode()
    operation.clusters.cache_clear()
    try:
        yield started
    finally:
        del os.environ["DRUMLINE_CONNECT"]
        operation.clusters.cache_clear()
        await operation.close_connections()
        for server in started.servers.values():
            await server.stop()


class CrashAtChange:
    """Crashes the worker at its n-th change, before it is sent or after it was made."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.left = at
        self.after = after
        self.crashed = False

    def __enter__(self) -> CrashAtChange:
        self._original = original = Connect._send

        async def once(connect: Connect, method: str, path: str, body: object) -> Any:
            counts = method != "GET" and not self.crashed
            if counts and self.left == 0 and not self.after:
                self.crashed = True
                raise Crash
            answer = await original(connect, method, path, body)
            if counts and answer[0] != 409:
                if self.left == 0:
                    self.crashed = True
                    raise Crash
                self.left -= 1
            return answer

        Connect._send = once  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Connect._send = self._original  # type: ignore[method-assign]


def run_with_timeout(main: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
    """Run the coroutine of a test with a time limit."""

    async def limited() -> T:
        return await asyncio.wait_for(main, seconds)

    return asyncio.run(limited())
