"""How a run is stopped: the stages, and when each is due."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from drumline.domain.release import RunEnd


class StopStage(IntEnum):
    """Each stage is tried after the one before it had no effect."""

    PENDING = 0
    REQUESTED = 1
    """The task was asked to stop: an exception or a cancellation."""
    STACK_DUMPED = 2
    """The stack of the thread was written: it did not react, so it cannot send its own."""
    TERMINATED = 3
    """The runner got SIGTERM."""
    KILLED = 4
    """The runner's process group gets SIGKILL, and everything that it started."""


@dataclass(slots=True)
class PendingStop:
    """A run that is being stopped."""

    end: RunEnd
    reason: str
    started: float
    stage: StopStage = StopStage.PENDING
    stack: str = ""
    """The stack that the task itself reported when it was asked to stop."""


def next_stage(stage: StopStage, elapsed: float) -> StopStage | None:
    """The stage that is due now, given the elapsed part of the grace; None: wait."""
    if stage < StopStage.REQUESTED:
        return StopStage.REQUESTED
    if stage < StopStage.STACK_DUMPED and elapsed > 0.4:
        return StopStage.STACK_DUMPED
    if stage < StopStage.TERMINATED and elapsed > 0.5:
        return StopStage.TERMINATED
    return StopStage.KILLED if elapsed > 1 else None
