"""The states of sweeps, and the legal transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from drumline.errors import Conflict


class SweepState(StrEnum):
    """Where a sweep is. Each comment says who moves it out."""

    CREATED = "created"  # an operator starts it, or its create hook refuses it
    WAITING = "waiting"  # its prepare hook ends, the handler starts it, or anyone stops it
    RUNNING = "running"  # its last partition finishes, or anyone stops it
    STOPPING = "stopping"  # its last running partition has stopped
    STOPPED = "stopped"  # an operator starts it again
    FINISHED = "finished"  # nobody
    FAILED = "failed"  # nobody


class Initiator(StrEnum):
    """Who asks for a move."""

    OPERATOR = "operator"
    HANDLER = "handler"  # the user's code: hooks, and items that start or stop their own sweep
    RUNNER = "runner"  # Drumline's: a partition ended, a hook broke, the error budget is spent


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
"""A stop always goes through stopping; where nothing runs, stopped follows in the same transaction.
Waiting or running goes to stopped at once only if the start failed."""

ACTIVE = frozenset({S.WAITING, S.RUNNING, S.STOPPING})
ENDED = frozenset({S.FINISHED, S.FAILED})

_VERBS = {
    S.CREATED: "create it again",
    S.WAITING: "start it",
    S.RUNNING: "start it",
    S.STOPPING: "stop it",
    S.STOPPED: "call it stopped",
    S.FINISHED: "call it finished",
    S.FAILED: "refuse it",
}


def check_sweep_transition(source: SweepState, target: SweepState, by: Initiator) -> None:
    """Refuse a move that the table does not have, and say from where it would be legal."""
    table = TRANSITIONS[by]
    if target in table.get(source, ()):
        return
    verb = _VERBS[target]
    sources = [state.value for state in S if target in table.get(state, ())]
    rule = f"may {verb} only from {' or '.join(sources)}" if sources else f"may never {verb}"
    article = "an" if by is Initiator.OPERATOR else "the"
    raise Conflict(reason=f"The sweep is {source.value}: {article} {by.value} {rule}.")


def state_after_start(source: SweepState, *, prepare: bool) -> SweepState:
    """What an operator's start makes of it: it waits where the handler has to prepare first."""
    target = S.WAITING if prepare else S.RUNNING
    check_sweep_transition(source, target, Initiator.OPERATOR)
    return target


def state_after_stop(source: SweepState, by: Initiator, *, asked: bool) -> SweepState:
    """What a stop makes of it. Asked twice is fine, also when the first has already been done.

    `asked` says whether a stop was asked since the last start: a sweep that stopped by itself has
    nothing to stop.
    """
    if source is S.STOPPING or (source is S.STOPPED and asked):
        return source
    check_sweep_transition(source, S.STOPPING, by)
    return S.STOPPING


def check_extra_change(source: SweepState, parallel: int | None) -> None:
    """The handler changes its extra data while waiting, or while only one item runs at a time."""
    if source is S.WAITING or (source is S.RUNNING and parallel == 1):
        return
    state = "running in parallel" if source is S.RUNNING else source.value
    raise Conflict(
        reason=f"The sweep is {state}: the handler may change its extra data only while it waits, "
        "or while it runs with parallel 1."
    )
