"""`cdc_job_start` and `cdc_job_stop`: have a connector run, or stop it and free its tasks."""

from __future__ import annotations

from typing import Any, ClassVar

from drumline.handlers.base import Change
from drumline.handlers.connect.operation import (
    ClusterParam,
    Operation,
    Site,
    bring,
    connector_of,
    existing,
    site,
    sought,
)
from drumline.handlers.connect.states import WantedState, is_at, target_of
from drumline.task import Task


class _BringTo(Operation):
    param_type: ClassVar[Any] = ClusterParam | None
    target: ClassVar[WantedState]

    def _where(self, task: Task) -> Site:
        return site(sought(task, self.param(task, ClusterParam)))

    async def build_param(self, task: Task) -> Change:
        where, name = self._where(task), connector_of(task)
        await existing(where, name)
        status = await where.connect.status(name)
        state = None if status is None else status.connector.state
        return Change({"state": state}, {"state": self.target.value})

    async def is_finished(self, task: Task) -> bool:
        status = await self._where(task).connect.status(connector_of(task))
        return is_at(status, self.target)

    async def rollback(self, task: Task) -> None:
        """Bring the connector back to what it did before."""
        target = target_of(task.before_update["state"])
        await bring(self._where(task), connector_of(task), target)


class StartConnector(_BringTo):
    types: ClassVar[tuple[str, ...]] = ("cdc_job_start",)
    target: ClassVar[WantedState] = WantedState.RUNNING

    async def process(self, task: Task) -> None:
        """Resume a connector, restart what has failed of it, and wait until all of it runs."""
        await bring(self._where(task), connector_of(task), self.target)


class StopConnector(_BringTo):
    types: ClassVar[tuple[str, ...]] = ("cdc_job_stop",)
    target: ClassVar[WantedState] = WantedState.STOPPED

    async def process(self, task: Task) -> None:
        """Stop a connector and wait until none of its tasks is left."""
        await bring(self._where(task), connector_of(task), self.target)
