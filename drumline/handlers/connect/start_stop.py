"""`cdc_job_start` and `cdc_job_stop`: start a connector, or stop it and free its tasks."""

from __future__ import annotations

from typing import Any, ClassVar

from drumline.handlers.base import Change
from drumline.handlers.connect.operation import (
    ClusterConnection,
    ClusterParam,
    Operation,
    bring_to_state,
    cluster_connection,
    cluster_selector,
    connector_name,
    require_config,
)
from drumline.handlers.connect.states import WantedState, is_in_state, wanted_state
from drumline.task import Task


class _ChangeState(Operation):
    param_type: ClassVar[Any] = ClusterParam | None
    target: ClassVar[WantedState]

    def _where(self, task: Task) -> ClusterConnection:
        return cluster_connection(cluster_selector(task, self.param(task, ClusterParam)))

    async def build_param(self, task: Task) -> Change:
        where, name = self._where(task), connector_name(task)
        await require_config(where, name)
        status = await where.connect.status(name)
        state = None if status is None else status.connector.state
        return Change({"state": state}, {"state": self.target.value})

    async def is_finished(self, task: Task) -> bool:
        status = await self._where(task).connect.status(connector_name(task))
        return is_in_state(status, self.target)

    async def rollback(self, task: Task) -> None:
        """Restore the connector's state from before."""
        target = wanted_state(task.before_update["state"])
        await bring_to_state(self._where(task), connector_name(task), target)


class StartConnector(_ChangeState):
    types: ClassVar[tuple[str, ...]] = ("cdc_job_start",)
    target: ClassVar[WantedState] = WantedState.RUNNING

    async def process(self, task: Task) -> None:
        """Resume a connector, restart its failed tasks, and wait until all of them run."""
        await bring_to_state(self._where(task), connector_name(task), self.target)


class StopConnector(_ChangeState):
    types: ClassVar[tuple[str, ...]] = ("cdc_job_stop",)
    target: ClassVar[WantedState] = WantedState.STOPPED

    async def process(self, task: Task) -> None:
        """Stop a connector and wait until all its tasks are gone."""
        await bring_to_state(self._where(task), connector_name(task), self.target)
