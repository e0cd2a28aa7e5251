"""`cdc_switch_az` and `cdc_switch_run_system`: move a connector to another Connect cluster.

    stop the old one -> make a marked, stopped copy -> give it the offsets -> take the mark off
    -> delete the old one -> let the new one run

At every point at least one whole copy exists, and never do two run. Nothing but what the clusters
show is needed to go on after a crash, forwards or backwards; the configuration with its secrets
goes from cluster to cluster and is kept nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from drumline.config.connect_clusters import Sought, find
from drumline.errors import WrongUse
from drumline.handlers.base import Change
from drumline.handlers.connect.change_config import Overrides, Settings, difference
from drumline.handlers.connect.client import changed
from drumline.handlers.connect.creation import MARK, create, ensure_config, is_whole, remove
from drumline.handlers.connect.operation import (
    Name,
    Operation,
    Site,
    bring,
    clusters,
    connector_of,
    existing,
    site,
    sought,
)
from drumline.handlers.connect.states import WantedState, is_at, target_of
from drumline.task import Task


class ToAz(Overrides, frozen=True, kw_only=True):
    """Which az to move to; and settings that are to be others there."""

    to_az: Name


class ToSystem(Overrides, frozen=True, kw_only=True):
    """Which run system to move to; and settings that are to be others there."""

    to_system: Name


class Copies(NamedTuple):
    """A connector's configuration in two clusters; None where it is not."""

    here: dict[str, str] | None
    there: dict[str, str] | None


class _Move(Operation):
    """Moves between the cluster of `before_update` and that of `after_update`."""

    param_type: ClassVar[Any]

    def _ends(self, task: Task) -> tuple[Sought, Sought]:
        raise NotImplementedError

    async def build_param(self, task: Task) -> Change:
        name, overrides = connector_of(task), self.param(task, self.param_type)
        source, goal = self._ends(task)
        there = site(goal)
        here = _other(source, there)
        copies = await _copies(here, there, name)
        for config in copies:
            if config is not None and MARK in config:
                raise WrongUse(reason=f"connector {name} is being moved by {config[MARK]}")
        if copies.here is not None and copies.there is not None:
            raise WrongUse(reason=f"connector {name} is in {here.name} and in {there.name} already")
        if copies.there is not None:
            here = there  # it is where it should be; there is no other place to go back to
        config = copies.here or copies.there or await existing(here, name)
        before, after = difference(config, overrides.settings(there.connect.cluster))
        status = await here.connect.status(name)
        state = None if status is None else status.connector.state
        return Change(
            {"cluster": here.name, "state": state, "config": before},
            {"cluster": there.name, "config": after},
        )

    async def is_finished(self, task: Task) -> bool:
        name = connector_of(task)
        here, there = _named(task.before_update), _named(task.after_update)
        copies = await _copies(here, there, name)
        if copies.there is None or (copies.here is not None and here.name != there.name):
            return False
        if changed(copies.there, {**task.after_update["config"], MARK: None}) != copies.there:
            return False
        return is_at(await there.connect.status(name), target_of(task.before_update["state"]))

    async def process(self, task: Task) -> None:
        """Move a connector, with its offsets, to another Connect cluster."""
        await _settle(task, _named(task.before_update), _named(task.after_update),
                      task.after_update["config"])  # fmt: skip

    async def rollback(self, task: Task) -> None:
        """Move the connector, with the offsets it has come to, back to where it was."""
        await _settle(task, _named(task.after_update), _named(task.before_update),
                      task.before_update["config"])  # fmt: skip


class SwitchAz(_Move):
    types: ClassVar[tuple[str, ...]] = ("cdc_switch_az",)
    param_type: ClassVar[Any] = ToAz

    def _ends(self, task: Task) -> tuple[Sought, Sought]:
        param = self.param(task, ToAz)
        source = _spelled_out(sought(task, param))
        return source, Sought(source.env, source.region, param.to_az, source.system)

    async def process(self, task: Task) -> None:
        """Move a connector, with its offsets, to the Connect cluster of another az."""
        await super().process(task)


class SwitchRunSystem(_Move):
    types: ClassVar[tuple[str, ...]] = ("cdc_switch_run_system",)
    param_type: ClassVar[Any] = ToSystem

    def _ends(self, task: Task) -> tuple[Sought, Sought]:
        param = self.param(task, ToSystem)
        source = _spelled_out(sought(task, param))
        return source, Sought(source.env, source.region, source.az, param.to_system)

    async def process(self, task: Task) -> None:
        """Move a connector, with its offsets, to the Connect cluster of another run system."""
        await super().process(task)


def _named(captured: Mapping[str, Any]) -> Site:
    return site(Sought(name=captured["cluster"]))


def _spelled_out(source: Sought) -> Sought:
    """A cluster that was called by its name is the start of the search for the other one."""
    if not source.name:
        return source
    cluster = find(clusters(), source)
    return Sought(cluster.env, cluster.region, cluster.az, cluster.system, cluster.name)


def _other(source: Sought, there: Site) -> Site:
    """The cluster to move from: the one that fits, leaving out the one to move to."""
    cluster = find([each for each in clusters() if each.name != there.name], source)
    return site(Sought(name=cluster.name))


async def _copies(here: Site, there: Site, name: str) -> Copies:
    return Copies(await here.connect.config(name), await there.connect.config(name))


async def _settle(task: Task, away: Site, home: Site, settings: Settings) -> None:
    """Have the connector whole at `home` and nowhere else, doing what it did before."""
    name, state = connector_of(task), target_of(task.before_update["state"])
    if away.name != home.name:
        if not is_whole(await home.connect.config(name)):
            await _transfer(task, away, home, settings)
        if await away.connect.config(name) is not None:
            await remove(away, name)
    await ensure_config(home, name, changed(await existing(home, name), settings))
    await bring(home, name, state)


async def _transfer(task: Task, away: Site, home: Site, settings: Settings) -> None:
    """Make a whole copy at home of the one that is away, which is stopped for it."""
    name = connector_of(task)
    if not is_whole(await away.connect.config(name)):
        raise WrongUse(reason=f"connector {name} is neither in {away.name} nor in {home.name}")
    await bring(away, name, WantedState.STOPPED)
    config = changed(await existing(away, name), settings)
    offsets = await away.connect.offsets(name)
    await create(home, name, {**config, "name": name}, offsets, task.id)
