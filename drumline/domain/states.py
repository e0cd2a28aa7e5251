"""The states of tasks and batches, and the legal transitions between them.

The table of transitions is the only source: the store refuses any other transition, tests generate
their cases from the table, and the diagram in docs/states.md is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from drumline.errors import IllegalTransition


class TaskState(StrEnum):
    """The state of a task. Each comment names what moves the task on."""

    SCHEDULED = "scheduled"  # the ticker decides the firing
    PENDING = "pending"  # a keeper acquires it; the ticker, if the firing was missed
    RUNNING = "running"  # its keeper releases it; the reaper, if the keeper is dead
    WAITING_CALLBACK = "waiting_callback"  # a callback ends it; the reaper, if none comes in time
    SUCCESS = "success"  # an operator rolls it back
    FAIL = "fail"  # an operator retries it or rolls it back
    RETRY_PENDING = "retry_pending"  # a keeper acquires it
    CANCEL = "cancel"  # an operator rolls it back
    SKIPPED = "skipped"  # final
    ROLLBACK_PENDING = "rollback_pending"  # a keeper acquires it
    ROLLBACK_RUNNING = "rollback_running"  # as RUNNING
    ROLLBACK_SUCCESS = "rollback_success"  # final
    ROLLBACK_FAIL = "rollback_fail"  # an operator retries it


class BatchState(StrEnum):
    """The status of a batch, which follows from its phase and its counters."""

    LOADING = "loading"  # its tasks are being inserted; none may start
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAIL = "fail"
    PARTIAL_FAIL = "partial_fail"
    CANCEL = "cancel"
    ROLLBACK_RUNNING = "rollback_running"
    ROLLBACK_SUCCESS = "rollback_success"
    ROLLBACK_FAIL = "rollback_fail"


class Phase(StrEnum):
    """What operators have decided about a batch: it limits the states of its tasks."""

    LOADING = "loading"
    FORWARD = "forward"
    ROLLBACK = "rollback"
    CANCEL = "cancel"


class BatchOperation(StrEnum):
    """What is applied to all tasks of a batch, in chunks."""

    OPEN = "open"
    DISCARD = "discard"
    CANCEL = "cancel"
    KILL = "kill"
    RETRY = "retry"
    ROLLBACK = "rollback"


class KeeperState(StrEnum):
    """The state of one incarnation of a keeper."""

    ALIVE = "alive"
    GONE = "gone"  # unregistered
    DEAD = "dead"  # declared dead by the reaper; never revived


class Cause(StrEnum):
    """Why a task failed, was cancelled or was skipped, or why its last attempt failed."""

    ERROR = "error"
    TIMEOUT = "timeout"
    DIED = "died"
    QUARANTINED = "quarantined"
    CANCELLED = "cancelled"
    CALLBACK_TIMEOUT = "callback_timeout"
    OVERLAP = "overlap"
    FAILURE = "failure"
    CONCURRENCY = "concurrency"
    MISFIRE = "misfire"


S = TaskState

TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    S.SCHEDULED: frozenset({S.PENDING, S.SKIPPED, S.CANCEL}),
    S.PENDING: frozenset({S.RUNNING, S.CANCEL, S.ROLLBACK_PENDING, S.SCHEDULED}),
    S.RETRY_PENDING: frozenset({S.RUNNING, S.CANCEL, S.ROLLBACK_PENDING}),
    S.RUNNING: frozenset({S.SUCCESS, S.FAIL, S.PENDING, S.WAITING_CALLBACK, S.CANCEL}),
    S.WAITING_CALLBACK: frozenset({S.SUCCESS, S.FAIL, S.PENDING, S.CANCEL}),
    S.SUCCESS: frozenset({S.ROLLBACK_PENDING}),
    S.FAIL: frozenset({S.RETRY_PENDING, S.ROLLBACK_PENDING}),
    S.CANCEL: frozenset({S.ROLLBACK_PENDING}),
    S.SKIPPED: frozenset(),
    S.ROLLBACK_PENDING: frozenset({S.ROLLBACK_RUNNING, S.CANCEL}),
    S.ROLLBACK_RUNNING: frozenset(
        {S.ROLLBACK_SUCCESS, S.ROLLBACK_FAIL, S.ROLLBACK_PENDING, S.CANCEL}
    ),
    S.ROLLBACK_SUCCESS: frozenset(),
    S.ROLLBACK_FAIL: frozenset({S.ROLLBACK_PENDING}),
}

DUE = frozenset({S.PENDING, S.RETRY_PENDING, S.ROLLBACK_PENDING})
HELD = frozenset({S.RUNNING, S.ROLLBACK_RUNNING})
FINISHED = frozenset({S.SUCCESS, S.FAIL, S.CANCEL, S.SKIPPED, S.ROLLBACK_SUCCESS, S.ROLLBACK_FAIL})
BATCH_FINISHED = frozenset(
    {
        BatchState.SUCCESS,
        BatchState.FAIL,
        BatchState.PARTIAL_FAIL,
        BatchState.CANCEL,
        BatchState.ROLLBACK_SUCCESS,
        BatchState.ROLLBACK_FAIL,
    }
)

ACQUIRED: Mapping[TaskState, TaskState] = {
    S.PENDING: S.RUNNING,
    S.RETRY_PENDING: S.RUNNING,
    S.ROLLBACK_PENDING: S.ROLLBACK_RUNNING,
}
"""The state of a due task after a keeper has acquired it."""

GIVEN_BACK: Mapping[TaskState, TaskState] = {
    S.RUNNING: S.PENDING,
    S.WAITING_CALLBACK: S.PENDING,
    S.ROLLBACK_RUNNING: S.ROLLBACK_PENDING,
}
"""The state of a held task that must run again. A rollback stays a rollback."""


def check_transition(source: TaskState, target: TaskState) -> None:
    """Refuse a transition that is not in the table."""
    if target not in TRANSITIONS[source]:
        raise IllegalTransition(source=source.value, target=target.value)


def aggregate_batch_state(counts: Mapping[TaskState, int], phase: Phase) -> BatchState:
    """The status of a batch, from the number of its tasks in each state."""
    present = {state for state, n in counts.items() if n > 0}
    match phase:
        case Phase.LOADING:
            return BatchState.LOADING
        case Phase.CANCEL:
            return BatchState.CANCEL
        case Phase.ROLLBACK:
            if present - FINISHED:
                return BatchState.ROLLBACK_RUNNING
            if S.ROLLBACK_FAIL in present:
                return BatchState.ROLLBACK_FAIL
            return BatchState.ROLLBACK_SUCCESS
        case Phase.FORWARD:
            if present - FINISHED:
                return BatchState.RUNNING
            if present == {S.SUCCESS}:
                return BatchState.SUCCESS
            if present == {S.FAIL}:
                return BatchState.FAIL
            if present == {S.CANCEL}:
                return BatchState.CANCEL
            return BatchState.PARTIAL_FAIL


def mermaid_diagram() -> str:
    """The transitions as a Mermaid state diagram, for docs/states.md."""
    lines = ["stateDiagram-v2", "    [*] --> scheduled", "    [*] --> pending"]
    for source in TaskState:
        lines += [
            f"    {source} --> {target}" for target in TaskState if target in TRANSITIONS[source]
        ]
    lines += [f"    {state} --> [*]" for state in TaskState if state in FINISHED]
    return "\n".join(lines) + "\n"
