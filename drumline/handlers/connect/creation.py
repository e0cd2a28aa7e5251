"""Making a connector in a cluster, whole or not at all, and removing one.

A connector that is still being made carries a mark in its configuration and does not run. The
mark goes when its offsets are there: so whoever finds one, after any crash, knows whether it is
whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drumline.errors import WrongUse
from drumline.handlers.connect.client import Offset
from drumline.handlers.connect.offsets import plan
from drumline.handlers.connect.operation import Site, bring, ensure
from drumline.handlers.connect.secrets import Config
from drumline.handlers.connect.states import WantedState, is_at

MARK = "drumline.moving"


def is_whole(config: Config | None) -> bool:
    """Is there a connector, and is it made to the end?"""
    return config is not None and MARK not in config


async def create(
    where: Site, name: str, config: Config, offsets: Sequence[Offset], task_id: int
) -> None:
    """Make a connector that is stopped and has these offsets, and no others."""
    connect = where.connect
    marked = {**config, MARK: f"task {task_id}"}

    async def is_there() -> bool:
        return await connect.config(name) is not None

    await ensure(is_there, lambda: connect.create_stopped(name, marked))
    await bring(where, name, WantedState.STOPPED)

    async def has_offsets() -> bool:
        return not plan(await connect.offsets(name), offsets)

    async def give_offsets() -> None:
        # A cluster remembers the offsets of a connector that was deleted there long ago.
        await connect.alter_offsets(name, plan(await connect.offsets(name), offsets))

    await ensure(has_offsets, give_offsets)
    await ensure_config(where, name, config)


async def ensure_config(where: Site, name: str, config: Mapping[str, str]) -> None:
    """Have exactly this configuration."""

    async def is_set() -> bool:
        return await where.connect.config(name) == config

    await ensure(is_set, lambda: where.connect.put_config(name, config))


async def remove(where: Site, name: str) -> None:
    """Delete a connector that is stopped or was never whole. One that runs is not ours."""
    connect = where.connect
    if is_whole(await connect.config(name)):
        status = await connect.status(name)
        if not is_at(status, WantedState.STOPPED):
            raise WrongUse(
                reason=f"connector {name} also runs in {where.name}; stop or delete one of the two"
            )

    async def is_gone() -> bool:
        return await connect.config(name) is None

    await ensure(is_gone, lambda: connect.delete(name))
