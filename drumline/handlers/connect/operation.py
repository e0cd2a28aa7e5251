"""What all operations on connectors share: which connector, which cluster, and safe steps.

A task may be stopped at any instruction and begun again, here or elsewhere. So every step looks
first and acts only if what it wants is not there yet; nothing is remembered between the attempts
but `before_update` and what Connect itself shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Meta

from drumline.config.connect_clusters import ConnectCluster, Sought, find
from drumline.errors import WrongUse
from drumline.handlers.base import Handler
from drumline.handlers.connect.client import Connect, ConnectError, Unsure
from drumline.handlers.connect.secrets import masked
from drumline.handlers.connect.states import FAILED, ConnectorFailed, WantedState
from drumline.handlers.connect.watch import Watch
from drumline.task import Task

TRIES = 4

Name = Annotated[str, Meta(min_length=1, max_length=64)]


class ClusterParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the connector is, as far as the batch's env, region and az do not say it."""

    cluster: Name | None = None
    az: Name | None = None
    system: Name | None = None


P = TypeVar("P", bound=ClusterParam)


class Site(msgspec.Struct, frozen=True):
    """A cluster and how to wait for what happens there."""

    connect: Connect
    watch: Watch

    @property
    def name(self) -> str:
        return self.connect.cluster.name


class Operation(Handler):
    """The base of the handlers for connectors."""

    target_type: ClassVar[str] = "cdc"
    param_type: ClassVar[Any] = ClusterParam

    def param(self, task: Task, kind: type[P]) -> P:
        """The parameters. Checked at submission, but a task may have come another way."""
        try:
            return msgspec.convert(task.param or {}, kind)
        except msgspec.ValidationError as error:
            raise WrongUse(field="param", reason=str(error)) from None


def connector_of(task: Task) -> str:
    name = task.target_name or task.target_id
    if not name:
        raise WrongUse(reason="the target names no connector: set target_name or target_id")
    return name


def sought(task: Task, place: ClusterParam) -> Sought:
    """What a task says about its cluster: its own words first, then its batch's."""
    batch = task.batch
    if place.cluster is not None:
        return Sought(name=place.cluster)
    return Sought(
        env=task.target_env or task.env or "",
        region=task.region,
        az=place.az or (batch.az if batch is not None else None) or "",
        system=place.system or "",
    )


# --- clusters ------------------------------------------------------------------------------------

_sites: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Site]] = WeakKeyDictionary()


@cache
def clusters() -> tuple[ConnectCluster, ...]:
    """The clusters of this process's settings."""
    from drumline import config

    return config.load().connect


def site(wanted: Sought) -> Site:
    """The one cluster that is meant, with connections that all tasks of this runner share."""
    cluster = find(clusters(), wanted)
    known = _sites.setdefault(asyncio.get_running_loop(), {})
    if cluster.name not in known:
        connect = Connect(cluster)
        known[cluster.name] = Site(connect, Watch(connect))
    return known[cluster.name]


async def close_sites() -> None:
    """Close the connections of the running loop: for programs that go on after it."""
    for each in _sites.pop(asyncio.get_running_loop(), {}).values():
        await each.watch.close()
        await each.connect.close()


# --- steps ---------------------------------------------------------------------------------------


async def existing(where: Site, name: str) -> dict[str, str]:
    """The configuration of a connector that must be there."""
    config = await where.connect.config(name)
    if config is None:
        raise WrongUse(reason=f"there is no connector {name} in Connect cluster {where.name}")
    return config


async def ensure(done: Callable[[], Awaitable[bool]], act: Callable[[], Awaitable[Any]]) -> None:
    """Act unless it is done; if the answer got lost, look before acting again."""
    for attempt in range(1, TRIES + 1):
        if await done():
            return
        try:
            await act()
            return
        except Unsure:
            if attempt == TRIES:
                raise
            await asyncio.sleep(0.1 * attempt)


async def bring(where: Site, name: str, target: WantedState) -> None:
    """Have a connector run, pause or stop, and wait until it does.

    It is always asked: the state that shows may be from before something that was asked for a
    moment ago, by an attempt that died. Asking for what is so already changes nothing.
    """
    connect = where.connect
    ask = {
        WantedState.RUNNING: connect.resume,
        WantedState.PAUSED: connect.pause,
        WantedState.STOPPED: connect.stop,
    }[target]

    async def never() -> bool:
        return False

    await ensure(never, lambda: ask(name))
    await wait(where, name, target)


async def wait(where: Site, name: str, target: WantedState) -> None:
    """Until a connector is where it was told to be; with its reason if it fails instead."""
    if target is WantedState.RUNNING:
        await _restart_failed(where, name)
    try:
        await where.watch.until(name, target)
    except ConnectorFailed as error:
        # A trace may quote the settings; they are fetched to know what to leave out of it.
        config = await where.connect.config(name)
        raise ConnectError(
            cluster=where.name, reason=f"connector {name}: {masked(str(error), config)}"
        ) from None


async def _restart_failed(where: Site, name: str) -> None:
    """Neither resuming nor new settings help what has failed; it must be restarted."""
    status = await where.connect.status(name)
    if status is None:
        return
    states = [status.connector.state, *(task.state for task in status.tasks)]
    if FAILED in states:
        try:
            await where.connect.restart_failed(name)
        except Unsure:
            return  # the wait will show whether it helped
