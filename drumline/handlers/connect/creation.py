"""Creating a connector with its offsets, and removing one.

A connector that is still being created has a mark in its configuration and does not run. The mark
is removed when the offsets are set, so after any crash it is clear whether a connector is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drumline.errors import WrongUse
from drumline.handlers.connect.client import Offset
from drumline.handlers.connect.offsets import offset_changes
from drumline.handlers.connect.operation import ClusterConnection, act_until_done, bring_to_state
from drumline.handlers.connect.secrets import Config
from drumline.handlers.connect.states import WantedState, is_in_state

MARK = "drumline.moving"


def is_complete(config: Config | None) -> bool:
    """Whether the connector exists and its creation was completed."""
    return config is not None and MARK not in config


async def create(
    where: ClusterConnection, name: str, config: Config, offsets: Sequence[Offset], task_id: int
) -> None:
    """Create a stopped connector that has exactly these offsets."""
    connect = where.connect
    marked = {**config, MARK: f"task {task_id}"}

    async def is_there() -> bool:
        return await connect.config(name) is not None

    await act_until_done(is_there, lambda: connect.create_stopped(name, marked))
    await bring_to_state(where, name, WantedState.STOPPED)

    async def has_offsets() -> bool:
        return not offset_changes(await connect.offsets(name), offsets)

    async def give_offsets() -> None:
        # A cluster keeps the offsets of a connector that was deleted long ago.
        await connect.alter_offsets(name, offset_changes(await connect.offsets(name), offsets))

    await act_until_done(has_offsets, give_offsets)
    await ensure_config(where, name, config)


async def ensure_config(where: ClusterConnection, name: str, config: Mapping[str, str]) -> None:
    """Set exactly this configuration."""

    async def is_set() -> bool:
        return await where.connect.config(name) == config

    await act_until_done(is_set, lambda: where.connect.put_config(name, config))


async def remove(where: ClusterConnection, name: str) -> None:
    """Delete a connector that is stopped or incomplete. A running one is refused."""
    connect = where.connect
    if is_complete(await connect.config(name)):
        status = await connect.status(name)
        if not is_in_state(status, WantedState.STOPPED):
            raise WrongUse(
                reason=f"connector {name} also runs in {where.name}; stop or delete one of the two"
            )

    async def is_gone() -> bool:
        return await connect.config(name) is None

    await act_until_done(is_gone, lambda: connect.delete(name))
