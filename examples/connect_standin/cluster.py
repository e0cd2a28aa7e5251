"""A Connect cluster: connectors, their states and offsets, and how changes become true."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MYSQL = "io.debezium.connector.mysql.MySqlConnector"
SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
WORKER = "127.0.0.1:8083"
TRACE = "org.apache.kafka.connect.errors.ConnectException: {}\n\tat io.debezium.Somewhere(1)"


@dataclass
class Manners:
    """How a cluster behaves."""

    delay: float = 0.1
    """Seconds until a change of state is true; each takes between half and all of it."""
    rebalance: float = 0.05
    """Seconds for which a change that moves tasks has the workers rebalance."""
    latency: float = 0.0
    events: float = 100.0
    """Transactions a second that a running connector gets through."""
    patch_config: bool = True
    """Is this a Kafka 3.8 or newer?"""
    password: str = ""


class Refused(Exception):
    """What Connect answers instead of doing it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass
class Connector:
    name: str
    config: dict[str, str]
    target: str = "RUNNING"
    state: str | None = None
    """As the workers last said; None: they have not spoken of it."""
    trace: str = ""
    tasks: list[dict[str, Any]] = field(default_factory=list)
    offsets: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    done: float = 0.0
    running_since: float | None = None
    work: asyncio.Task[None] | None = None

    @property
    def partition(self) -> dict[str, Any]:
        return {"server": self.config.get("topic.prefix", self.name)}

    def task_count(self) -> int:
        if self.config["connector.class"].startswith("io.debezium"):
            return 1
        return int(self.config.get("tasks.max", "1"))

    def status(self) -> dict[str, Any]:
        connector = {"state": self.state, "worker_id": WORKER}
        if self.trace:
            connector["trace"] = self.trace
        return {"name": self.name, "connector": connector, "tasks": self.tasks, "type": "source"}

    def info(self) -> dict[str, Any]:
        tasks = [{"connector": self.name, "task": task["id"]} for task in self.tasks]
        return {"name": self.name, "config": self.config, "tasks": tasks, "type": "source"}

    def complaint(self) -> str:
        """Real ones quote what they should not."""
        return TRACE.format(f"Access denied with password {self.config.get('database.password')}")

    def commit(self, done: float) -> None:
        """Write down how far it has come."""
        offset = {
            "file": "mysql-bin.000003", "pos": 154 + int(done) * 40, "row": 1, "event": 2,
            "server_id": 223344, "gtids": f"{SOURCE}:1-{int(done)}",
        }  # fmt: skip
        self.offsets[_key(self.partition)] = (self.partition, offset)

    def alter(self, partition: dict[str, Any], offset: dict[str, Any] | None) -> None:
        if offset is None:
            self.offsets.pop(_key(partition), None)
            return
        self.offsets[_key(partition)] = (partition, offset)
        last = re.search(r"-(\d+)$", str(offset.get("gtids", "")))
        if partition == self.partition and last:
            self.done = float(last[1])


class Cluster:
    """The connectors, and the workers that there are not."""

    def __init__(self, name: str = "connect", manners: Manners | None = None) -> None:
        self.name = name
        self.manners = manners or Manners()
        self.connectors: dict[str, Connector] = {}
        self.rebalancing_until = 0.0
        self._remembered: dict[str, Connector] = {}

    def seed(self, names: Iterable[str], config: dict[str, str] | None = None) -> None:
        """Connectors that have been running for a while."""
        for number, name in enumerate(names):
            made = {
                "name": name,
                "connector.class": MYSQL,
                "tasks.max": "1",
                "topic.prefix": name,
                "database.hostname": f"db-{number % 10}.example",
                "database.user": "replicator",
                "database.password": f"plain-secret-of-{name}",
                "max.batch.size": str(2048 + number % 7),
                **(config or {}),
            }
            connector = Connector(name, made, state="RUNNING", done=1000.0)
            connector.running_since = time.monotonic()
            connector.tasks = _tasks(connector.task_count(), "RUNNING")
            connector.commit(connector.done)
            self.connectors[name] = connector

    async def close(self) -> None:
        works = [c.work for c in self.connectors.values() if c.work is not None]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    def get(self, name: str) -> Connector:
        if name not in self.connectors:
            raise Refused(404, f"Connector {name} not found")
        return self.connectors[name]

    def stopped(self, name: str) -> Connector:
        """A connector whose offsets may be altered."""
        connector = self.get(name)
        # As in Connect it is the target that counts, not what the workers have come to.
        if connector.target != "STOPPED":
            raise Refused(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified. "
                "This can be done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{name}/stop' endpoint",
            )
        return connector

    def require_balance(self) -> None:
        if time.monotonic() < self.rebalancing_until:
            raise Refused(
                409,
                "Cannot complete request because of a conflicting operation "
                "(e.g. worker rebalance)",
            )

    # --- changes ---------------------------------------------------------------------------------

    def create(self, name: str, config: dict[str, str], target: str) -> Connector:
        if name in self.connectors:
            raise Refused(409, f"Connector {name} already exists")
        connector = Connector(name, config, target)
        if (before := self._remembered.pop(name, None)) is not None:
            connector.offsets, connector.done = before.offsets, before.done
        self.connectors[name] = connector
        self._settle_later(connector, moves_tasks=True)
        return connector

    def delete(self, name: str) -> None:
        """The offsets stay: a connector of that name would go on from them."""
        connector = self.get(name)
        if connector.work is not None:
            connector.work.cancel()
        self._halt(connector)
        self._remembered[name] = connector
        del self.connectors[name]
        self._rebalance()

    def configure(self, connector: Connector, config: dict[str, str]) -> None:
        before = connector.task_count()
        connector.config = config
        self._settle_later(connector, moves_tasks=connector.task_count() != before)

    def aim(self, connector: Connector, target: str) -> None:
        if connector.target != target:
            connector.target = target
            self._settle_later(connector, moves_tasks="STOPPED" in (target, connector.state))

    def restart(self, connector: Connector) -> None:
        self._settle_later(connector, moves_tasks=False)

    def look(self, connector: Connector) -> None:
        """Have a running connector commit."""
        if connector.running_since is not None and self.manners.events:
            ran = time.monotonic() - connector.running_since
            connector.commit(connector.done + self.manners.events * ran)

    # --- what becomes of them --------------------------------------------------------------------

    def _rebalance(self) -> None:
        """Changes that come close together are one rebalance, and there is time between two."""
        now, length = time.monotonic(), self.manners.rebalance
        if length and now > self.rebalancing_until + length:
            self.rebalancing_until = now + length

    def _settle_later(self, connector: Connector, *, moves_tasks: bool) -> None:
        if connector.work is not None:
            connector.work.cancel()
        if moves_tasks:
            self._rebalance()
        connector.work = asyncio.get_running_loop().create_task(self._settle(connector))

    async def _settle(self, connector: Connector) -> None:
        """What the workers do about a change, a while after it was accepted."""
        await self._pause()
        self._halt(connector)
        connector.trace = ""
        if connector.target == "STOPPED":
            connector.tasks, connector.state = [], "STOPPED"
            return
        fails = connector.config.get("standin.fail")
        if fails == "connector":
            connector.state, connector.tasks = "FAILED", []
            connector.trace = connector.complaint()
            return
        connector.state = connector.target
        connector.tasks = _tasks(connector.task_count(), "UNASSIGNED")
        await self._pause()
        connector.tasks = _tasks(connector.task_count(), connector.target)
        if fails == "task":
            connector.tasks[0] |= {"state": "FAILED", "trace": connector.complaint()}
        elif connector.target == "RUNNING":
            connector.running_since = time.monotonic()

    async def _pause(self) -> None:
        await asyncio.sleep(self.manners.delay * random.uniform(0.5, 1.0))

    def _halt(self, connector: Connector) -> None:
        """Its tasks end, and commit what they did last: over whatever was written meanwhile."""
        if connector.running_since is not None:
            ran = time.monotonic() - connector.running_since
            connector.running_since = None
            if self.manners.events:
                connector.done += self.manners.events * ran
                connector.commit(connector.done)


def _tasks(count: int, state: str) -> list[dict[str, Any]]:
    return [{"id": i, "state": state, "worker_id": WORKER} for i in range(count)]


def _key(partition: dict[str, Any]) -> str:
    return json.dumps(partition, sort_keys=True)
