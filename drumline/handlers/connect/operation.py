"""The base of all operations on connectors: selecting connector and cluster, and repeatable steps.

A task may be stopped at any instruction and started again, on any worker. So every step first reads
the state and acts only if the wanted state is not reached; attempts share nothing but
`before_update` and the state of Connect itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Meta

from drumline.config.connect_clusters import ClusterSelector, ConnectCluster, select_cluster
from drumline.errors import WrongUse
from drumline.handlers.base import Handler
from drumline.handlers.connect.client import Connect, ConnectError, UnknownOutcome
from drumline.handlers.connect.secrets import mask_config_secrets
from drumline.handlers.connect.state_poller import StatePoller
from drumline.handlers.connect.states import FAILED, ConnectorFailed, WantedState
from drumline.task import Task

TRIES = 4

Name = Annotated[str, Meta(min_length=1, max_length=64)]


class ClusterParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters that select a cluster, in addition to the batch's env, region and az."""

    cluster: Name | None = None
    az: Name | None = None
    system: Name | None = None


P = TypeVar("P", bound=ClusterParam)


class ClusterConnection(msgspec.Struct, frozen=True):
    """A cluster's client, and the poller of its connectors' states."""

    connect: Connect
    states: StatePoller

    @property
    def name(self) -> str:
        return self.connect.cluster.name


class Operation(Handler):
    """The base of the handlers for connectors."""

    target_type: ClassVar[str] = "cdc"
    param_type: ClassVar[Any] = ClusterParam

    def param(self, task: Task, kind: type[P]) -> P:
        """The parameters, validated again: not every task comes through a submission."""
        try:
            return msgspec.convert(task.param or {}, kind)
        except msgspec.ValidationError as error:
            raise WrongUse(field="param", reason=str(error)) from None


def connector_name(task: Task) -> str:
    name = task.target_name or task.target_id
    if not name:
        raise WrongUse(reason="the target has no connector name: set target_name or target_id")
    return name


def cluster_selector(task: Task, place: ClusterParam) -> ClusterSelector:
    """The selector for a task's cluster, from its parameters first, then from its batch."""
    batch = task.batch
    if place.cluster is not None:
        return ClusterSelector(name=place.cluster)
    return ClusterSelector(
        env=task.target_env or task.env or "",
        region=task.region,
        az=place.az or (batch.az if batch is not None else None) or "",
        system=place.system or "",
    )


# --- clusters ------------------------------------------------------------------------------------

_sites: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ClusterConnection]] = (
    WeakKeyDictionary()
)


@cache
def clusters() -> tuple[ConnectCluster, ...]:
    """The clusters of this process's settings."""
    from drumline import config

    return config.load().connect


def cluster_connection(wanted: ClusterSelector) -> ClusterConnection:
    """The selected cluster, with connections that all tasks of this runner share."""
    cluster = select_cluster(clusters(), wanted)
    known = _sites.setdefault(asyncio.get_running_loop(), {})
    if cluster.name not in known:
        connect = Connect(cluster)
        known[cluster.name] = ClusterConnection(connect, StatePoller(connect))
    return known[cluster.name]


async def close_connections() -> None:
    """Close the connections of the running event loop, in programs that outlive it."""
    for each in _sites.pop(asyncio.get_running_loop(), {}).values():
        await each.states.close()
        await each.connect.close()


# --- steps ---------------------------------------------------------------------------------------


async def require_config(where: ClusterConnection, name: str) -> dict[str, str]:
    """The configuration of a connector, which must exist."""
    config = await where.connect.config(name)
    if config is None:
        raise WrongUse(reason=f"no connector {name} in Connect cluster {where.name}")
    return config


async def act_until_done(
    done: Callable[[], Awaitable[bool]], act: Callable[[], Awaitable[Any]]
) -> None:
    """Act unless it is done. After an unknown outcome, check again before acting again."""
    for attempt in range(1, TRIES + 1):
        if await done():
            return
        try:
            await act()
            return
        except UnknownOutcome:
            if attempt == TRIES:
                raise
            await asyncio.sleep(0.1 * attempt)


async def bring_to_state(where: ClusterConnection, name: str, target: WantedState) -> None:
    """Resume, pause or stop a connector, and wait until it is in that state.

    The request is always sent: the state that Connect reports may be older than a request of an
    earlier attempt that died. A request for the present state changes nothing.
    """
    connect = where.connect
    ask = {
        WantedState.RUNNING: connect.resume,
        WantedState.PAUSED: connect.pause,
        WantedState.STOPPED: connect.stop,
    }[target]

    async def never() -> bool:
        return False

    await act_until_done(never, lambda: ask(name))
    await wait_for_state(where, name, target)


async def wait_for_state(where: ClusterConnection, name: str, target: WantedState) -> None:
    """Wait until a connector is in the wanted state. Raises its error if it fails instead."""
    if target is WantedState.RUNNING:
        await _restart_failed(where, name)
    try:
        await where.states.until(name, target)
    except ConnectorFailed as error:
        # A trace may quote settings, so the secrets of the configuration are masked in it.
        config = await where.connect.config(name)
        raise ConnectError(
            cluster=where.name,
            reason=f"connector {name}: {mask_config_secrets(str(error), config)}",
        ) from None


async def _restart_failed(where: ClusterConnection, name: str) -> None:
    """Restart failed parts; neither a resume nor new settings restart them."""
    status = await where.connect.status(name)
    if status is None:
        return
    states = [status.connector.state, *(task.state for task in status.tasks)]
    if FAILED in states:
        try:
            await where.connect.restart_failed(name)
        except UnknownOutcome:
            return  # the caller's wait shows whether the restart has helped
