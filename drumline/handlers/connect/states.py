"""The states of a connector: the wanted ones, and when one of them is reached.

Connect answers a change immediately and applies it later, worker by worker. A connector that is
about to restart still shows its old state for a moment, so a state counts only after it has held
for some time.
"""

from __future__ import annotations

from enum import StrEnum

from drumline.handlers.connect.client import ConnectorReport


class WantedState(StrEnum):
    """A state that a connector can be brought to."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


FAILED = "FAILED"


class ConnectorFailed(Exception):
    """A connector or one of its tasks has failed and does not recover."""


def wanted_state(state: str | None) -> WantedState:
    """The state that was wanted of a connector in this state. FAILED, UNASSIGNED and others belong
    to a connector that should run."""
    return (
        WantedState(state)
        if state in (WantedState.PAUSED, WantedState.STOPPED)
        else WantedState.RUNNING
    )


def is_in_state(status: ConnectorReport | None, target: WantedState) -> bool:
    """Whether the connector and all its tasks are in the wanted state."""
    if status is None or status.connector.state != target:
        return False
    if target is WantedState.STOPPED:
        return not status.tasks
    return bool(status.tasks) and all(task.state == target for task in status.tasks)


def failure_reason(status: ConnectorReport | None) -> str | None:
    """The first failure of the connector or its tasks, as one line."""
    if status is None:
        return None
    if status.connector.state == FAILED:
        return f"the connector failed: {_first_line(status.connector.trace)}"
    for task in status.tasks:
        if task.state == FAILED:
            return f"its task {task.id} failed: {_first_line(task.trace)}"
    return None


def _first_line(trace: str) -> str:
    return (trace.strip().splitlines() or ["no trace"])[0][:500]


class StableState:
    """Tells when one connector has been in a state for `settle` seconds without interruption."""

    def __init__(self, target: WantedState, settle: float) -> None:
        self.target = target
        self.settle = settle
        self.failure_settle = max(settle, 0.5)
        self.good_since: float | None = None
        self.bad_since: float | None = None

    def update(self, status: ConnectorReport | None, now: float) -> bool:
        """Whether the state is stable. Raises `ConnectorFailed` if a failure is stable."""
        if is_in_state(status, self.target):
            self.bad_since = None
            if self.good_since is None:
                self.good_since = now
            return now - self.good_since >= self.settle
        self.good_since = None
        problem = failure_reason(status) if self.target is not WantedState.STOPPED else None
        if problem is None:
            self.bad_since = None
        elif self.bad_since is None:
            self.bad_since = now
        elif now - self.bad_since >= self.failure_settle:
            raise ConnectorFailed(problem)
        return False
