"""`panama_migrate_to_cdc`: creates a Debezium connector from the description of a panama job.

Everything about the panama job is in the parameters; the job must be stopped in its own system.
With a position, the connector continues where the job stopped, without a snapshot; without one, it
begins with a snapshot.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from drumline.config.connect_clusters import ConnectCluster
from drumline.errors import WrongUse
from drumline.handlers.base import Change
from drumline.handlers.connect.change_config import FIELDS
from drumline.handlers.connect.client import Offset
from drumline.handlers.connect.creation import create, remove
from drumline.handlers.connect.operation import (
    ClusterConnection,
    ClusterParam,
    Operation,
    act_until_done,
    bring_to_state,
    cluster_connection,
    cluster_selector,
    connector_name,
)
from drumline.handlers.connect.reset_gtid import Gtids
from drumline.handlers.connect.secrets import Reference, SettingMap, refuse_plain
from drumline.handlers.connect.states import WantedState, is_in_state
from drumline.task import Task

CLASSES = {
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
}

Text = Annotated[str, Meta(min_length=1)]


class PanamaSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The database whose changes the connector reads."""

    host: Text
    user: Text
    password: Reference
    server_id: Annotated[int, Meta(ge=1, le=2**32 - 1)]
    port: Annotated[int, Meta(ge=1, le=65535)] = 3306
    kind: Literal["mysql", "mariadb"] = "mysql"


class StartAt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The position at which the panama job stopped."""

    file: Text
    pos: Annotated[int, Meta(ge=0)]
    gtids: Gtids | None = None


class PanamaJob(ClusterParam, frozen=True, kw_only=True):
    """The description of a panama job for its connector."""

    source: PanamaSource
    topic_prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$")]
    bootstrap_servers: Text
    databases: tuple[Text, ...] = ()
    tables: tuple[Text, ...] = ()
    start_at: StartAt | None = None
    cpu: Annotated[float, Meta(gt=0)] | None = None
    memory: Annotated[str, Meta(pattern=r"^[1-9][0-9]*(Ki|Mi|Gi)?$")] | None = None
    max_package_size: Annotated[int, Meta(ge=1)] | None = None
    replicas: Annotated[int, Meta(ge=1)] | None = None
    state: Literal["RUNNING", "PAUSED", "STOPPED"] = "RUNNING"
    config: SettingMap = msgspec.field(default_factory=dict)

    def settings(self, name: str, cluster: ConnectCluster) -> dict[str, str]:
        """The complete configuration of the connector."""
        source = self.source
        made = {
            "name": name,
            "connector.class": CLASSES[source.kind],
            "tasks.max": "1",
            "database.hostname": source.host,
            "database.port": str(source.port),
            "database.user": source.user,
            "database.password": source.password,
            "database.server.id": str(source.server_id),
            "topic.prefix": self.topic_prefix,
            "schema.history.internal.kafka.bootstrap.servers": self.bootstrap_servers,
            "schema.history.internal.kafka.topic": f"{self.topic_prefix}.schema-history",
            # With offsets and no schema history yet, only this mode builds the history first.
            "snapshot.mode": "initial" if self.start_at is None else "recovery",
        }
        if self.databases:
            made["database.include.list"] = ",".join(self.databases)
        if self.tables:
            made["table.include.list"] = ",".join(self.tables)
        for field in FIELDS:
            value = getattr(self, field)
            if value is not None:
                made[cluster.key(field)] = f"{value:g}" if field == "cpu" else str(value)
        return {**made, **self.config, "name": name}

    def offsets(self) -> list[Offset]:
        if self.start_at is None:
            return []
        at = msgspec.structs.asdict(self.start_at)
        offset = {name: value for name, value in at.items() if value is not None}
        return [Offset({"server": self.topic_prefix}, offset)]


class PanamaMigrate(Operation):
    target_type: ClassVar[str] = "panama"
    types: ClassVar[tuple[str, ...]] = ("panama_migrate_to_cdc",)
    param_type: ClassVar[Any] = PanamaJob

    def _where(self, task: Task) -> ClusterConnection:
        return cluster_connection(cluster_selector(task, self.param(task, PanamaJob)))

    async def build_param(self, task: Task) -> Change:
        where, name = self._where(task), connector_name(task)
        job = self.param(task, PanamaJob)
        config = job.settings(name, where.connect.cluster)
        refuse_plain(config, "in the description")
        found = await where.connect.config(name)
        if found is not None and found != config:
            raise WrongUse(
                reason=f"another connector {name} exists in Connect cluster {where.name}"
            )
        after = {"config": config, "offsets": job.offsets(), "state": job.state}
        return Change({"exists": found is not None}, after)

    async def is_finished(self, task: Task) -> bool:
        where, name = self._where(task), connector_name(task)
        if await where.connect.config(name) != task.after_update["config"]:
            return False
        return is_in_state(
            await where.connect.status(name), WantedState(task.after_update["state"])
        )

    async def process(self, task: Task) -> None:
        """Create a Debezium connector from the description of a panama job, and start it."""
        where, name = self._where(task), connector_name(task)
        after = task.after_update
        if await where.connect.config(name) != after["config"]:
            offsets = msgspec.convert(after["offsets"], list[Offset])
            await create(where, name, after["config"], offsets, task.id)
        await bring_to_state(where, name, WantedState(after["state"]))

    async def rollback(self, task: Task) -> None:
        """Remove the connector with its offsets, unless it existed before."""
        if task.before_update["exists"]:
            return
        where, name = self._where(task), connector_name(task)
        connect = where.connect
        if await connect.config(name) is None:
            return
        await bring_to_state(where, name, WantedState.STOPPED)

        async def is_forgotten() -> bool:
            return not await connect.offsets(name)

        await act_until_done(is_forgotten, lambda: connect.reset_offsets(name))

        await remove(where, name)
