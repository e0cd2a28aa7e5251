"""`cdc_reset_gtid`: makes a connector continue from another position in its source's log.

It stops the connector, changes the offsets and resumes it: Connect allows changes of offsets only
while a connector is stopped, and a connector that is stopping may still write its last offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from drumline.errors import WrongUse
from drumline.handlers.base import Change
from drumline.handlers.connect.client import Offset
from drumline.handlers.connect.offsets import (
    mark,
    marked_by,
    moved_offset,
    offset_changes,
    without_mark,
)
from drumline.handlers.connect.operation import (
    ClusterConnection,
    ClusterParam,
    Operation,
    act_until_done,
    bring_to_state,
    cluster_connection,
    cluster_selector,
    connector_name,
    require_config,
)
from drumline.handlers.connect.states import WantedState, is_in_state, wanted_state
from drumline.task import Task

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_RANGES = r"(:[1-9][0-9]*(-[1-9][0-9]*)?)+"
_MYSQL_SET = rf"{_UUID}{_RANGES}(,\s*{_UUID}{_RANGES})*"
_MARIADB_SET = r"[0-9]+-[0-9]+-[0-9]+(,\s*[0-9]+-[0-9]+-[0-9]+)*"

Gtids = Annotated[
    str,
    Meta(
        pattern=rf"^({_MYSQL_SET}|{_MARIADB_SET})$",
        description="The transactions that count as processed: a MySQL or MariaDB GTID set.",
    ),
]


class Position(ClusterParam, frozen=True, kw_only=True):
    """The position to continue from: after a GTID set, or in a binlog file."""

    gtids: Gtids | None = None
    file: Annotated[str, Meta(min_length=1)] | None = None
    pos: Annotated[int, Meta(ge=0)] | None = None

    def offset(self) -> dict[str, Any]:
        """The position in the connector's own form."""
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

    def _where(self, task: Task) -> ClusterConnection:
        return cluster_connection(cluster_selector(task, self.param(task, Position)))

    async def build_param(self, task: Task) -> Change:
        where, name = self._where(task), connector_name(task)
        config = await require_config(where, name)
        status = await where.connect.status(name)
        offsets = without_mark(await where.connect.offsets(name))
        wanted = moved_offset(
            offsets, config.get("topic.prefix"), self.param(task, Position).offset()
        )
        state = None if status is None else status.connector.state
        return Change({"state": state, "offsets": offsets}, {"offsets": [wanted]})

    async def is_finished(self, task: Task) -> bool:
        where, name = self._where(task), connector_name(task)
        if marked_by(await where.connect.offsets(name)) != task.id:
            return False
        return is_in_state(
            await where.connect.status(name), wanted_state(task.before_update["state"])
        )

    async def process(self, task: Task) -> None:
        """Stop a connector, set the GTIDs that count as processed, and resume it."""
        where, name = self._where(task), connector_name(task)

        async def is_moved() -> bool:
            return marked_by(await where.connect.offsets(name)) == task.id

        if not await is_moved():
            await bring_to_state(where, name, WantedState.STOPPED)
            wanted = [*_offsets(task.after_update), mark(task.id)]
            await act_until_done(is_moved, lambda: where.connect.alter_offsets(name, wanted))
        await bring_to_state(where, name, wanted_state(task.before_update["state"]))

    async def rollback(self, task: Task) -> None:
        """Restore the offsets, and resume the connector."""
        where, name = self._where(task), connector_name(task)

        async def is_back() -> bool:
            return marked_by(await where.connect.offsets(name)) != task.id

        if not await is_back():
            await bring_to_state(where, name, WantedState.STOPPED)
            now = without_mark(await where.connect.offsets(name))
            wanted = [*offset_changes(now, _offsets(task.before_update)), mark(None)]
            await act_until_done(is_back, lambda: where.connect.alter_offsets(name, wanted))
        await bring_to_state(where, name, wanted_state(task.before_update["state"]))


def _offsets(captured: Any) -> Iterable[Offset]:
    return msgspec.convert(captured["offsets"], tuple[Offset, ...])
