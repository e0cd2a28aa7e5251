"""The states of sweeps, and the legal transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from drumline.errors import Conflict


class SweepState(StrEnum):
    """The state of a sweep. Each comment names what moves the sweep on."""

    CREATED = "created"  # an operator starts it, or its create hook refuses it
    WAITING = "waiting"  # the prepare hook ends, the handler starts it, or it is stopped
    RUNNING = "running"  # the last partition finishes, or it is stopped
    STOPPING = "stopping"  # the last running partition stops
    STOPPED = "stopped"  # an operator starts it again
    FINISHED = "finished"  # final
    FAILED = "failed"  # final


class Initiator(StrEnum):
    """The initiator of a transition."""

    OPERATOR = "operator"
    HANDLER = "handler"  # users' code: hooks, and items that stop their own sweep
    RUNNER = "runner"  # Drumline: a partition ended, a hook failed, the error budget is spent


S = SweepState

TRANSITIONS: Mapping[Initiator, Mapping[SweepState, frozenset[SweepState]]] = {
    Initiator.OPERATOR: {
        S.CREATED: frozenset({S.WAITING, S.RUNNING}),
        S.STOPPED: frozenset({S.WAITING, S.RUNNING}),
        S.WAITING: frozenset({S.STOPPING}),
        S.RUNNING: frozenset({S.STOPPING}),
    },
    Initiator.HANDLER: {
        S.CREATED: frozenset({S.FAILED}),
        S.WAITING: frozenset({S.RUNNING, S.STOPPING, S.FAILED}),
        S.RUNNING: frozenset({S.STOPPING}),
    },
    Initiator.RUNNER: {
        S.WAITING: frozenset({S.RUNNING, S.STOPPED}),
        S.RUNNING: frozenset({S.STOPPING, S.STOPPED, S.FINISHED}),
        S.STOPPING: frozenset({S.STOPPED, S.FINISHED}),
    },
}
"""A stop always leads through stopping; if no partition runs, stopped follows in the same
transaction. Only a failed start leads from waiting or running to stopped directly."""

ACTIVE = frozenset({S.WAITING, S.RUNNING, S.STOPPING})
ENDED = frozenset({S.FINISHED, S.FAILED})

_VERBS = {
    S.CREATED: "create it again",
    S.WAITING: "start it",
    S.RUNNING: "start it",
    S.STOPPING: "stop it",
    S.STOPPED: "mark it stopped",
    S.FINISHED: "mark it finished",
    S.FAILED: "refuse it",
}


def check_sweep_transition(source: SweepState, target: SweepState, by: Initiator) -> None:
    """Refuse a transition that is not in the table, and name the states that allow it."""
    table = TRANSITIONS[by]
    if target in table.get(source, ()):
        return
    verb = _VERBS[target]
    sources = [state.value for state in S if target in table.get(state, ())]
    rule = f"may {verb} only from {' or '.join(sources)}" if sources else f"may never {verb}"
    article = "an" if by is Initiator.OPERATOR else "the"
    raise Conflict(reason=f"The sweep is {source.value}: {article} {by.value} {rule}.")


def state_after_start(source: SweepState, *, prepare: bool) -> SweepState:
    """The state after an operator's start: waiting if the handler has a prepare hook."""
    target = S.WAITING if prepare else S.RUNNING
    check_sweep_transition(source, target, Initiator.OPERATOR)
    return target


def state_after_stop(source: SweepState, by: Initiator, *, asked: bool) -> SweepState:
    """The state after a stop. A repeated stop is allowed, also once the sweep has stopped.

    `asked`: a stop was requested since the last start. A sweep that stopped by itself cannot be
    stopped.
    """
    if source is S.STOPPING or (source is S.STOPPED and asked):
        return source
    check_sweep_transition(source, S.STOPPING, by)
    return S.STOPPING


def check_extra_change(source: SweepState, parallel: int | None) -> None:
    """Allow the handler to change its extra data only if no second item runs at the same time."""
    if source is S.WAITING or (source is S.RUNNING and parallel == 1):
        return
    state = "running in parallel" if source is S.RUNNING else source.value
    raise Conflict(
        reason=f"The sweep is {state}: the handler may change its extra data only while it waits, "
        "or while it runs with parallel 1."
    )
