"""`cdc_change_config`: change settings of a connector, and its number of tasks.

Only what changes is kept with the task: the old value of each key that gets a new one. Everything
else, secrets included, stays in Connect and is left alone by the change and by its rollback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from drumline.config.connect_clusters import ConnectCluster
from drumline.errors import WrongUse
from drumline.handlers.base import Change
from drumline.handlers.connect.client import changed
from drumline.handlers.connect.operation import (
    ClusterParam,
    Operation,
    Site,
    connector_of,
    ensure,
    existing,
    site,
    sought,
    wait,
)
from drumline.handlers.connect.secrets import SettingMap, refuse_plain
from drumline.handlers.connect.states import is_at, target_of
from drumline.task import Task

Settings = Mapping[str, str | None]
Field = Literal["cpu", "memory", "max_package_size", "replicas"]
FIELDS: tuple[Field, ...] = ("cpu", "memory", "max_package_size", "replicas")


class Overrides(ClusterParam, frozen=True, kw_only=True):
    """Settings to change. `cpu`, `memory`, `max_package_size` and `replicas` are names for
    settings that each cluster's configuration can say."""

    cpu: Annotated[float, Meta(gt=0, description="Cores.")] | None = None
    memory: Annotated[str, Meta(pattern=r"^[1-9][0-9]*(Ki|Mi|Gi)?$")] | None = None
    max_package_size: Annotated[int, Meta(ge=1, description="Bytes.")] | None = None
    replicas: Annotated[int, Meta(ge=1, le=10_000, description="At most so many tasks.")] | None = (
        None
    )
    set: SettingMap = msgspec.field(default_factory=dict)
    unset: tuple[Annotated[str, Meta(min_length=1)], ...] = ()

    def settings(self, cluster: ConnectCluster) -> dict[str, str | None]:
        """The change by the connector's own keys; None removes one."""
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
    Overrides,
    Meta(
        extra_json_schema={
            "anyOf": [{"required": [field]} for field in (*FIELDS, "set", "unset")],
        }
    ),
]


class ChangeConfig(Operation):
    types: ClassVar[tuple[str, ...]] = ("cdc_change_config",)
    param_type: ClassVar[Any] = ChangeParam

    def _where(self, task: Task) -> Site:
        return site(sought(task, self.param(task, Overrides)))

    async def build_param(self, task: Task) -> Change:
        where, name = self._where(task), connector_of(task)
        wanted = self.param(task, Overrides).settings(where.connect.cluster)
        if not wanted:
            raise WrongUse(field="param", reason="there is nothing to change")
        before, after = difference(await existing(where, name), wanted)
        status = await where.connect.status(name)
        state = None if status is None else status.connector.state
        return Change({"state": state, "config": before}, {"config": after})

    async def is_finished(self, task: Task) -> bool:
        where, name = self._where(task), connector_of(task)
        config = await existing(where, name)
        if changed(config, task.after_update["config"]) != config:
            return False
        return is_at(await where.connect.status(name), target_of(task.before_update["state"]))

    async def process(self, task: Task) -> None:
        """Change settings of a connector and wait until it runs with them."""
        await _apply(self._where(task), task, task.after_update["config"])

    async def rollback(self, task: Task) -> None:
        """Give the changed settings their old values back."""
        await _apply(self._where(task), task, task.before_update["config"])


async def _apply(where: Site, task: Task, settings: Settings) -> None:
    name, target = connector_of(task), target_of(task.before_update["state"])
    await set_config(where, name, settings)
    await wait(where, name, target)


async def set_config(where: Site, name: str, settings: Settings) -> None:
    """Change these settings, unless they are so already: Connect restarts a connector even for a
    change that changes nothing."""
    now: dict[str, str] = {}

    async def is_set() -> bool:
        nonlocal now
        now = await existing(where, name)
        return changed(now, settings) == now

    await ensure(is_set, lambda: where.connect.change_config(name, settings, now))


def difference(
    config: Mapping[str, str], wanted: Settings
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The settings that change, before and after; refused if that would give a secret away."""
    keys = [key for key, value in wanted.items() if config.get(key) != value]
    before = {key: config.get(key) for key in keys}
    after = {key: wanted[key] for key in keys}
    refuse_plain(after, "as it is to be")
    refuse_plain(before, "as it is now")
    return before, after
