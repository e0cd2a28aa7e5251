"""A connector's states: what is asked of it, and when it has got there.

Connect answers a change at once and makes it true later, worker by worker. A connector that was
told to restart still shows the states from before for a moment, so a state counts only when it
has held for a while.
"""

from __future__ import annotations

from enum import StrEnum

from drumline.handlers.connect.client import ConnectorReport


class WantedState(StrEnum):
    """What can be asked of a connector."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


FAILED = "FAILED"


class ConnectorFailed(Exception):
    """A connector or one of its tasks has failed, and stays so."""


def target_of(state: str | None) -> WantedState:
    """What was asked of a connector that is seen in this state. FAILED, UNASSIGNED and the like
    are what became of one that is to run."""
    return (
        WantedState(state)
        if state in (WantedState.PAUSED, WantedState.STOPPED)
        else WantedState.RUNNING
    )


def is_at(status: ConnectorReport | None, target: WantedState) -> bool:
    """Is the connector, with all its tasks, where it was told to be?"""
    if status is None or status.connector.state != target:
        return False
    if target is WantedState.STOPPED:
        return not status.tasks
    return bool(status.tasks) and all(task.state == target for task in status.tasks)


def failure(status: ConnectorReport | None) -> str | None:
    """The first thing that failed, in a line."""
    if status is None:
        return None
    if status.connector.state == FAILED:
        return f"the connector failed: {_first_line(status.connector.trace)}"
    for task in status.tasks:
        if task.state == FAILED:
            return f"its task {task.id} failed: {_first_line(task.trace)}"
    return None


def _first_line(trace: str) -> str:
    return (trace.strip().splitlines() or ["without a trace"])[0][:500]


class Settling:
    """Watches one connector until a state has held for `settle` seconds without a break."""

    def __init__(self, target: WantedState, settle: float) -> None:
        self.target = target
        self.settle = settle
        self.patience = max(settle, 0.5)
        self.good_since: float | None = None
        self.bad_since: float | None = None

    def look(self, status: ConnectorReport | None, now: float) -> bool:
        """Has it settled? Raises `ConnectorFailed` if it has settled on failing."""
        if is_at(status, self.target):
            self.bad_since = None
            if self.good_since is None:
                self.good_since = now
            return now - self.good_since >= self.settle
        self.good_since = None
        problem = failure(status) if self.target is not WantedState.STOPPED else None
        if problem is None:
            self.bad_since = None
        elif self.bad_since is None:
            self.bad_since = now
        elif now - self.bad_since >= self.patience:
            raise ConnectorFailed(problem)
        return False
