"""`cdc_switch_az` and `cdc_switch_run_system`: move a connector to another Connect cluster.

    stop the old one -> create a marked, stopped copy -> set its offsets -> remove the mark
    -> delete the old one -> start the new one

At every point at least one complete copy exists, and two copies never run at once. After a crash
the state of the clusters is enough to continue or to roll back. The configuration with its secrets
goes from cluster to cluster and is stored nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from drumline.config.connect_clusters import ClusterSelector, select_cluster
from drumline.errors import WrongUse
from drumline.handlers.base import Change
from drumline.handlers.connect.change_config import SettingChanges, Settings, difference
from drumline.handlers.connect.client import merge_config
from drumline.handlers.connect.creation import MARK, create, ensure_config, is_complete, remove
from drumline.handlers.connect.operation import (
    ClusterConnection,
    Name,
    Operation,
    bring_to_state,
    cluster_connection,
    cluster_selector,
    clusters,
    connector_name,
    require_config,
)
from drumline.handlers.connect.states import WantedState, is_in_state, wanted_state
from drumline.task import Task


class ToAz(SettingChanges, frozen=True, kw_only=True):
    """The az to move to, and settings to change there."""

    to_az: Name


class ToSystem(SettingChanges, frozen=True, kw_only=True):
    """The run system to move to, and settings to change there."""

    to_system: Name


class Copies(NamedTuple):
    """A connector's configuration in two clusters; None where it does not exist."""

    here: dict[str, str] | None
    there: dict[str, str] | None


class _Move(Operation):
    """Moves between the cluster of `before_update` and that of `after_update`."""

    param_type: ClassVar[Any]

    def _ends(self, task: Task) -> tuple[ClusterSelector, ClusterSelector]:
        raise NotImplementedError

    async def build_param(self, task: Task) -> Change:
        name, overrides = connector_name(task), self.param(task, self.param_type)
        source, goal = self._ends(task)
        there = cluster_connection(goal)
        here = _other(source, there)
        copies = await _copies(here, there, name)
        for config in copies:
            if config is not None and MARK in config:
                raise WrongUse(reason=f"connector {name} is being moved by {config[MARK]}")
        if copies.here is not None and copies.there is not None:
            raise WrongUse(reason=f"connector {name} exists in {here.name} and in {there.name}")
        if copies.there is not None:
            here = there  # already moved; there is no other cluster to roll back to
        config = copies.here or copies.there or await require_config(here, name)
        before, after = difference(config, overrides.settings(there.connect.cluster))
        status = await here.connect.status(name)
        state = None if status is None else status.connector.state
        return Change(
            {"cluster": here.name, "state": state, "config": before},
            {"cluster": there.name, "config": after},
        )

    async def is_finished(self, task: Task) -> bool:
        name = connector_name(task)
        here, there = _captured_cluster(task.before_update), _captured_cluster(task.after_update)
        copies = await _copies(here, there, name)
        if copies.there is None or (copies.here is not None and here.name != there.name):
            return False
        if merge_config(copies.there, {**task.after_update["config"], MARK: None}) != copies.there:
            return False
        return is_in_state(
            await there.connect.status(name), wanted_state(task.before_update["state"])
        )

    async def process(self, task: Task) -> None:
        """Move a connector, with its offsets, to another Connect cluster."""
        await _complete_move(task, task.before_update, task.after_update)

    async def rollback(self, task: Task) -> None:
        """Move the connector, with its present offsets, back to its old cluster."""
        await _complete_move(task, task.after_update, task.before_update)


class SwitchAz(_Move):
    types: ClassVar[tuple[str, ...]] = ("cdc_switch_az",)
    param_type: ClassVar[Any] = ToAz

    def _ends(self, task: Task) -> tuple[ClusterSelector, ClusterSelector]:
        param = self.param(task, ToAz)
        source = _with_all_labels(cluster_selector(task, param))
        return source, ClusterSelector(source.env, source.region, param.to_az, source.system)

    async def process(self, task: Task) -> None:
        """Move a connector, with its offsets, to the Connect cluster of another az."""
        await super().process(task)


class SwitchRunSystem(_Move):
    types: ClassVar[tuple[str, ...]] = ("cdc_switch_run_system",)
    param_type: ClassVar[Any] = ToSystem

    def _ends(self, task: Task) -> tuple[ClusterSelector, ClusterSelector]:
        param = self.param(task, ToSystem)
        source = _with_all_labels(cluster_selector(task, param))
        return source, ClusterSelector(source.env, source.region, source.az, param.to_system)

    async def process(self, task: Task) -> None:
        """Move a connector, with its offsets, to the Connect cluster of another run system."""
        await super().process(task)


def _captured_cluster(captured: Mapping[str, Any]) -> ClusterConnection:
    return cluster_connection(ClusterSelector(name=captured["cluster"]))


def _with_all_labels(source: ClusterSelector) -> ClusterSelector:
    """The selector with the labels of the named cluster, for the search of the other cluster."""
    if not source.name:
        return source
    cluster = select_cluster(clusters(), source)
    return ClusterSelector(cluster.env, cluster.region, cluster.az, cluster.system, cluster.name)


def _other(source: ClusterSelector, there: ClusterConnection) -> ClusterConnection:
    """The cluster to move from: the one that matches, other than the one to move to."""
    cluster = select_cluster([each for each in clusters() if each.name != there.name], source)
    return cluster_connection(ClusterSelector(name=cluster.name))


async def _copies(here: ClusterConnection, there: ClusterConnection, name: str) -> Copies:
    return Copies(await here.connect.config(name), await there.connect.config(name))


async def _complete_move(task: Task, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Move the connector from the captured cluster `old` to `new`, in its state from before."""
    away, home, settings = _captured_cluster(old), _captured_cluster(new), new["config"]
    name, state = connector_name(task), wanted_state(task.before_update["state"])
    if away.name != home.name:
        if not is_complete(await home.connect.config(name)):
            await _copy_connector(task, away, home, settings)
        if await away.connect.config(name) is not None:
            await remove(away, name)
    await ensure_config(home, name, merge_config(await require_config(home, name), settings))
    await bring_to_state(home, name, state)


async def _copy_connector(
    task: Task, away: ClusterConnection, home: ClusterConnection, settings: Settings
) -> None:
    """Stop the connector at `away` and create a complete copy at `home`."""
    name = connector_name(task)
    if not is_complete(await away.connect.config(name)):
        raise WrongUse(reason=f"connector {name} exists neither in {away.name} nor in {home.name}")
    await bring_to_state(away, name, WantedState.STOPPED)
    config = merge_config(await require_config(away, name), settings)
    offsets = await away.connect.offsets(name)
    await create(home, name, {**config, "name": name}, offsets, task.id)
