"""`cdc_change_config`: changes settings of a connector, and its number of tasks.

The task stores only the keys that change, with their old values. All other settings, secrets
included, stay in Connect, and neither the change nor its rollback touches them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from drumline.config.connect_clusters import ConnectCluster
from drumline.errors import WrongUse
from drumline.handlers.base import Change
from drumline.handlers.connect.client import merge_config
from drumline.handlers.connect.operation import (
    ClusterConnection,
    ClusterParam,
    Operation,
    act_until_done,
    cluster_connection,
    cluster_selector,
    connector_name,
    require_config,
    wait_for_state,
)
from drumline.handlers.connect.secrets import SettingMap, refuse_plain
from drumline.handlers.connect.states import is_in_state, wanted_state
from drumline.task import Task

Settings = Mapping[str, str | None]
Field = Literal["cpu", "memory", "max_package_size", "replicas"]
FIELDS: tuple[Field, ...] = ("cpu", "memory", "max_package_size", "replicas")


class SettingChanges(ClusterParam, frozen=True, kw_only=True):
    """Settings to change. `cpu`, `memory`, `max_package_size` and `replicas` stand for settings
    that the configuration of each cluster names."""

    cpu: Annotated[float, Meta(gt=0, description="Cores.")] | None = None
    memory: Annotated[str, Meta(pattern=r"^[1-9][0-9]*(Ki|Mi|Gi)?$")] | None = None
    max_package_size: Annotated[int, Meta(ge=1, description="Bytes.")] | None = None
    replicas: (
        Annotated[int, Meta(ge=1, le=10_000, description="Maximum number of tasks.")] | None
    ) = None
    set: SettingMap = msgspec.field(default_factory=dict)
    unset: tuple[Annotated[str, Meta(min_length=1)], ...] = ()

    def settings(self, cluster: ConnectCluster) -> dict[str, str | None]:
        """The change, by the connector's own keys; None removes a key."""
        wanted: dict[str, str | None] = dict.fromkeys(self.unset)
        for field in FIELDS:
            value = getattr(self, field)
            if value is not None:
                wanted[cluster.key(field)] = f"{value:g}" if field == "cpu" else str(value)
        wanted.update(self.set)
        if "name" in wanted or "connector.class" in wanted:
            raise WrongUse(reason="a connector's name and class cannot be changed")
        return wanted


ChangeParam = Annotated[
    SettingChanges,
    Meta(
        extra_json_schema={
            "anyOf": [{"required": [field]} for field in (*FIELDS, "set", "unset")],
        }
    ),
]


class ChangeConfig(Operation):
    types: ClassVar[tuple[str, ...]] = ("cdc_change_config",)
    param_type: ClassVar[Any] = ChangeParam

    def _where(self, task: Task) -> ClusterConnection:
        return cluster_connection(cluster_selector(task, self.param(task, SettingChanges)))

    async def build_param(self, task: Task) -> Change:
        where, name = self._where(task), connector_name(task)
        wanted = self.param(task, SettingChanges).settings(where.connect.cluster)
        if not wanted:
            raise WrongUse(field="param", reason="it changes nothing")
        before, after = difference(await require_config(where, name), wanted)
        status = await where.connect.status(name)
        state = None if status is None else status.connector.state
        return Change({"state": state, "config": before}, {"config": after})

    async def is_finished(self, task: Task) -> bool:
        where, name = self._where(task), connector_name(task)
        config = await require_config(where, name)
        if merge_config(config, task.after_update["config"]) != config:
            return False
        return is_in_state(
            await where.connect.status(name), wanted_state(task.before_update["state"])
        )

    async def process(self, task: Task) -> None:
        """Change settings of a connector and wait until it runs with them."""
        await _apply(self._where(task), task, task.after_update["config"])

    async def rollback(self, task: Task) -> None:
        """Restore the old values of the changed settings."""
        await _apply(self._where(task), task, task.before_update["config"])


async def _apply(where: ClusterConnection, task: Task, settings: Settings) -> None:
    name, target = connector_name(task), wanted_state(task.before_update["state"])
    await set_config(where, name, settings)
    await wait_for_state(where, name, target)


async def set_config(where: ClusterConnection, name: str, settings: Settings) -> None:
    """Change these settings, unless they already have these values: Connect restarts a connector
    even when nothing changes."""
    now: dict[str, str] = {}

    async def is_set() -> bool:
        nonlocal now
        now = await require_config(where, name)
        return merge_config(now, settings) == now

    await act_until_done(is_set, lambda: where.connect.change_config(name, settings, now))


def difference(
    config: Mapping[str, str], wanted: Settings
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The settings that change, before and after. Refuses plain secrets."""
    keys = [key for key, value in wanted.items() if config.get(key) != value]
    before = {key: config.get(key) for key in keys}
    after = {key: wanted[key] for key in keys}
    refuse_plain(after, "in the new configuration")
    refuse_plain(before, "in the present configuration")
    return before, after
