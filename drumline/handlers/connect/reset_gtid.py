"""`cdc_reset_gtid`: have a connector go on from another place in its source's log.

Stop, alter the offsets, resume: Connect lets offsets be changed only while a connector is
stopped, and one that has just been told to stop may still write its own last ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from drumline.errors import WrongUse
from drumline.handlers.base import Change
from drumline.handlers.connect.client import Offset
from drumline.handlers.connect.offsets import mark, marked_by, moved, plan, without_mark
from drumline.handlers.connect.operation import (
    ClusterParam,
    Operation,
    Site,
    bring,
    connector_of,
    ensure,
    existing,
    site,
    sought,
)
from drumline.handlers.connect.states import WantedState, is_at, target_of
from drumline.task import Task

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_RANGES = r"(:[1-9][0-9]*(-[1-9][0-9]*)?)+"
_MYSQL_SET = rf"{_UUID}{_RANGES}(,\s*{_UUID}{_RANGES})*"
_MARIADB_SET = r"[0-9]+-[0-9]+-[0-9]+(,\s*[0-9]+-[0-9]+-[0-9]+)*"

Gtids = Annotated[
    str,
    Meta(
        pattern=rf"^({_MYSQL_SET}|{_MARIADB_SET})$",
        description="The transactions that count as done: a MySQL or MariaDB GTID set.",
    ),
]


class Position(ClusterParam, frozen=True, kw_only=True):
    """Where to go on: after a GTID set, or at a place in a binlog file."""

    gtids: Gtids | None = None
    file: Annotated[str, Meta(min_length=1)] | None = None
    pos: Annotated[int, Meta(ge=0)] | None = None

    def offset(self) -> dict[str, Any]:
        """As the connector keeps it."""
        if self.gtids is None and (self.file is None or self.pos is None):
            raise WrongUse(field="param", reason="give gtids, or file and pos")
        named = {"gtids": self.gtids, "file": self.file, "pos": self.pos}
        return {name: value for name, value in named.items() if value is not None}


PositionParam = Annotated[
    Position,
    Meta(
        extra_json_schema={"anyOf": [{"required": ["gtids"]}, {"required": ["file", "pos"]}]},
    ),
]


class ResetGtid(Operation):
    types: ClassVar[tuple[str, ...]] = ("cdc_reset_gtid",)
    param_type: ClassVar[Any] = PositionParam

    def _where(self, task: Task) -> Site:
        return site(sought(task, self.param(task, Position)))

    async def build_param(self, task: Task) -> Change:
        where, name = self._where(task), connector_of(task)
        config = await existing(where, name)
        status = await where.connect.status(name)
        offsets = without_mark(await where.connect.offsets(name))
        wanted = moved(offsets, config.get("topic.prefix"), self.param(task, Position).offset())
        state = None if status is None else status.connector.state
        return Change({"state": state, "offsets": offsets}, {"offsets": [wanted]})

    async def is_finished(self, task: Task) -> bool:
        where, name = self._where(task), connector_of(task)
        if marked_by(await where.connect.offsets(name)) != task.id:
            return False
        return is_at(await where.connect.status(name), target_of(task.before_update["state"]))

    async def process(self, task: Task) -> None:
        """Stop a connector, set the GTIDs that count as done, and let it go on from there."""
        where, name = self._where(task), connector_of(task)

        async def is_moved() -> bool:
            return marked_by(await where.connect.offsets(name)) == task.id

        if not await is_moved():
            await bring(where, name, WantedState.STOPPED)
            wanted = [*_offsets(task.after_update), mark(task.id)]
            await ensure(is_moved, lambda: where.connect.alter_offsets(name, wanted))
        await bring(where, name, target_of(task.before_update["state"]))

    async def rollback(self, task: Task) -> None:
        """Set the offsets back to what they were, and let the connector go on from there."""
        where, name = self._where(task), connector_of(task)

        async def is_back() -> bool:
            return marked_by(await where.connect.offsets(name)) != task.id

        if not await is_back():
            await bring(where, name, WantedState.STOPPED)
            now = without_mark(await where.connect.offsets(name))
            wanted = [*plan(now, _offsets(task.before_update)), mark(None)]
            await ensure(is_back, lambda: where.connect.alter_offsets(name, wanted))
        await bring(where, name, target_of(task.before_update["state"]))


def _offsets(captured: Any) -> Iterable[Offset]:
    return msgspec.convert(captured["offsets"], tuple[Offset, ...])
