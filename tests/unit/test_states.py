"""The transitions of tasks, and the status of batches."""

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.domain.states import (
    ACQUIRED,
    BATCH_FINISHED,
    DUE,
    FINISHED,
    GIVEN_BACK,
    HELD,
    TRANSITIONS,
    BatchState,
    Phase,
    TaskState,
    aggregate_batch_state,
    check_transition,
    mermaid_diagram,
)
from drumline.errors import IllegalTransition

S = TaskState
DOCUMENT = Path(__file__).parents[2] / "docs" / "states.md"


def test_the_table_has_every_state_and_only_states() -> None:
    assert set(TRANSITIONS) == set(TaskState)
    assert set().union(*TRANSITIONS.values()) <= set(TaskState)
    assert all(state not in targets for state, targets in TRANSITIONS.items())


@pytest.mark.parametrize(("source", "target"), list(product(TaskState, TaskState)))
def test_a_transition_is_refused_unless_it_is_in_the_table(source: S, target: S) -> None:
    if target in TRANSITIONS[source]:
        check_transition(source, target)
    else:
        with pytest.raises(IllegalTransition, match=f"from {source.value} to {target.value}"):
            check_transition(source, target)


def test_every_state_belongs_to_exactly_one_group() -> None:
    others = {S.SCHEDULED, S.WAITING_CALLBACK}
    kinds: list[frozenset[S] | set[S]] = [DUE, HELD, FINISHED, others]
    assert Counter(state for kind in kinds for state in kind) == Counter(TaskState)


def test_a_task_is_held_only_after_it_was_acquired() -> None:
    for source, targets in TRANSITIONS.items():
        assert targets & HELD == ({ACQUIRED[source]} if source in DUE else set())
    assert set(ACQUIRED) == DUE


def test_a_task_that_is_given_back_is_due_again() -> None:
    assert set(GIVEN_BACK) >= HELD
    for source, target in GIVEN_BACK.items():
        assert target in DUE
        check_transition(source, target)


def test_finished_tasks_move_only_by_retry_or_rollback() -> None:
    for source in FINISHED:
        assert TRANSITIONS[source] <= {S.RETRY_PENDING, S.ROLLBACK_PENDING}


def test_no_rollback_state_leads_back_to_a_forward_state() -> None:
    seen = {S.ROLLBACK_PENDING}
    while more := set().union(*(TRANSITIONS[state] for state in seen)) - seen:
        seen |= more
    assert seen == {
        S.ROLLBACK_PENDING, S.ROLLBACK_RUNNING, S.ROLLBACK_SUCCESS, S.ROLLBACK_FAIL, S.CANCEL,
    }  # fmt: skip


def test_every_state_is_reachable_and_can_reach_an_end() -> None:
    reached = {S.SCHEDULED, S.PENDING}
    while more := set().union(*(TRANSITIONS[state] for state in reached)) - reached:
        reached |= more
    assert reached == set(TaskState)
    ends = set(FINISHED)
    while more := {s for s, targets in TRANSITIONS.items() if targets & ends} - ends:
        ends |= more
    assert ends == set(TaskState)


# --- status of a batch -------------------------------------------------------------------------


def naive(states: list[S], phase: Phase) -> BatchState:
    """The rule, applied task by task."""
    if phase is Phase.LOADING:
        return BatchState.LOADING
    if phase is Phase.CANCEL:
        return BatchState.CANCEL
    left = [state for state in states if state not in FINISHED]
    if phase is Phase.ROLLBACK:
        if left:
            return BatchState.ROLLBACK_RUNNING
        failed = any(state is S.ROLLBACK_FAIL for state in states)
        return BatchState.ROLLBACK_FAIL if failed else BatchState.ROLLBACK_SUCCESS
    if left:
        return BatchState.RUNNING
    for state, batch in (
        (S.SUCCESS, BatchState.SUCCESS),
        (S.FAIL, BatchState.FAIL),
        (S.CANCEL, BatchState.CANCEL),
    ):
        if all(one is state for one in states):
            return batch
    return BatchState.PARTIAL_FAIL


@given(
    states=st.lists(st.sampled_from(TaskState), min_size=1, max_size=6),
    phase=st.sampled_from(Phase),
    zeros=st.booleans(),
)
def test_the_status_of_a_batch_follows_from_its_tasks(
    states: list[S], phase: Phase, zeros: bool
) -> None:
    counts: dict[S, int] = dict.fromkeys(TaskState, 0) if zeros else {}
    counts.update(Counter(states))
    assert aggregate_batch_state(counts, phase) is naive(states, phase)


@given(
    states=st.lists(st.sampled_from(TaskState), min_size=1, max_size=6),
    phase=st.sampled_from([Phase.FORWARD, Phase.ROLLBACK]),
)
def test_a_batch_is_finished_exactly_if_its_tasks_are(states: list[S], phase: Phase) -> None:
    finished = aggregate_batch_state(Counter(states), phase) in BATCH_FINISHED
    assert finished is all(state in FINISHED for state in states)


# --- the diagram -------------------------------------------------------------------------------


def test_the_diagram_shows_exactly_the_transitions() -> None:
    arrows = {
        tuple(line.split(" --> ")) for line in mermaid_diagram().splitlines() if " --> " in line
    }
    arrows = {(a.strip(), b.strip()) for a, b in arrows if "[*]" not in (a.strip(), b.strip())}
    assert arrows == {(a.value, b.value) for a, targets in TRANSITIONS.items() for b in targets}


def test_the_page_has_the_diagram_of_this_table() -> None:
    text = DOCUMENT.read_text()
    assert f"```mermaid\n{mermaid_diagram()}```" in text, (
        "docs/states.md: replace its diagram by mermaid_diagram()"
    )
    for state in (*TaskState, *BatchState, *Phase):
        assert f"`{state.value}`" in text, f"docs/states.md does not say what {state.value} is"
