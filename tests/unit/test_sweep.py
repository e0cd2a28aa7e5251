"""The rules of sweeps: transitions, definition, partitions, error budget and progress."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.domain.sweeps.definition import SweepDefinition
from drumline.domain.sweeps.partitioning import (
    node_partition_limit,
    share_of_parallel,
    share_of_rate,
    split_into_partitions,
)
from drumline.domain.sweeps.progress import PartitionProgress, spent_budget_reason, sum_progress
from drumline.domain.sweeps.states import (
    ACTIVE,
    ENDED,
    TRANSITIONS,
    Initiator,
    SweepState,
    check_extra_change,
    check_sweep_transition,
    state_after_start,
    state_after_stop,
)
from drumline.errors import Conflict, WrongUse

S = SweepState
ALL = set(SweepState)


def legal(by: Initiator, target: SweepState) -> set[SweepState]:
    """The states from which the code allows this initiator the transition."""
    found = set()
    for source in SweepState:
        try:
            check_sweep_transition(source, target, by)
        except Conflict:
            continue
        found.add(source)
    return found


# From the documentation, not from the table.
PROMISED = [
    (Initiator.OPERATOR, S.RUNNING, {S.CREATED, S.STOPPED}),
    (Initiator.OPERATOR, S.WAITING, {S.CREATED, S.STOPPED}),
    (Initiator.OPERATOR, S.STOPPING, {S.WAITING, S.RUNNING}),
    (Initiator.OPERATOR, S.STOPPED, set()),
    (Initiator.OPERATOR, S.FINISHED, set()),
    (Initiator.OPERATOR, S.FAILED, set()),
    (Initiator.HANDLER, S.RUNNING, {S.WAITING}),
    (Initiator.HANDLER, S.WAITING, set()),
    (Initiator.HANDLER, S.STOPPING, {S.WAITING, S.RUNNING}),
    (Initiator.HANDLER, S.FAILED, {S.CREATED, S.WAITING}),
    (Initiator.HANDLER, S.FINISHED, set()),
    (Initiator.RUNNER, S.RUNNING, {S.WAITING}),
    (Initiator.RUNNER, S.STOPPED, {S.WAITING, S.RUNNING, S.STOPPING}),
    (Initiator.RUNNER, S.FINISHED, {S.RUNNING, S.STOPPING}),
    (Initiator.RUNNER, S.FAILED, set()),
]


@pytest.mark.parametrize(("by", "target", "sources"), PROMISED)
def test_transitions_are_legal_exactly_from_the_documented_states(
    by: Initiator, target: SweepState, sources: set[SweepState]
) -> None:
    assert legal(by, target) == sources


def test_end_states_are_final_and_reachable_from_every_other_state() -> None:
    moves = {
        source: {target for table in TRANSITIONS.values() for target in table.get(source, ())}
        for source in SweepState
    }
    for source in SweepState:
        reached, todo = {source}, [source]
        while todo:
            fresh = moves[todo.pop()] - reached
            reached |= fresh
            todo += fresh
        assert S.CREATED not in reached - {source}
        if source in ENDED:
            assert reached == {source}
        else:
            assert S.FINISHED in reached
    assert not ACTIVE & ENDED


def test_a_start_leads_to_waiting_if_the_handler_prepares() -> None:
    assert state_after_start(S.CREATED, prepare=True) is S.WAITING
    assert state_after_start(S.STOPPED, prepare=False) is S.RUNNING


@pytest.mark.parametrize("source", sorted(ALL - {S.CREATED, S.STOPPED}))
@pytest.mark.parametrize("prepare", [True, False])
def test_an_illegal_start_is_refused_with_its_reason(source: SweepState, prepare: bool) -> None:
    with pytest.raises(Conflict) as refused:
        state_after_start(source, prepare=prepare)
    assert str(refused.value) == (
        f"The sweep is {source.value}: an operator may start it only from created or stopped."
    )


def test_the_handler_cannot_start_a_stopping_sweep() -> None:
    with pytest.raises(Conflict, match="is stopping: the handler may start it only from waiting"):
        check_sweep_transition(S.STOPPING, S.RUNNING, Initiator.HANDLER)


def test_an_initiator_that_may_never_do_it_is_told_so() -> None:
    with pytest.raises(Conflict, match="an operator may never mark it finished"):
        check_sweep_transition(S.RUNNING, S.FINISHED, Initiator.OPERATOR)


@pytest.mark.parametrize("by", [Initiator.OPERATOR, Initiator.HANDLER])
def test_a_stop_may_be_repeated(by: Initiator) -> None:
    first = state_after_stop(S.RUNNING, by, asked=False)
    assert first is S.STOPPING
    assert state_after_stop(first, by, asked=True) is S.STOPPING
    assert state_after_stop(S.STOPPED, by, asked=True) is S.STOPPED


@pytest.mark.parametrize("source", [S.CREATED, S.STOPPED, S.FINISHED, S.FAILED])
def test_an_illegal_stop_is_refused_with_its_reason(source: SweepState) -> None:
    with pytest.raises(Conflict) as refused:
        state_after_stop(source, Initiator.OPERATOR, asked=False)
    assert str(refused.value) == (
        f"The sweep is {source.value}: an operator may stop it only from waiting or running."
    )


def test_a_finished_sweep_cannot_be_stopped_even_if_a_stop_was_asked() -> None:
    with pytest.raises(Conflict):
        state_after_stop(S.FINISHED, Initiator.OPERATOR, asked=True)


@given(
    asks=st.lists(
        st.sampled_from(
            ["start", "start+prepare", "stop", "handler start", "drained", "done", "refuse"]
        ),
        max_size=30,
    )
)
def test_invariants_hold_under_any_sequence_of_requests(asks: list[str]) -> None:
    """Random requests of operators, handler and runners; refused ones change nothing."""
    state, asked = S.CREATED, False
    for ask in asks:
        before = state
        try:
            if ask.startswith("start"):
                state, asked = state_after_start(state, prepare="prepare" in ask), False
            elif ask == "stop":
                state, asked = state_after_stop(state, Initiator.OPERATOR, asked=asked), True
            else:
                by, target = {
                    "handler start": (Initiator.HANDLER, S.RUNNING),
                    "drained": (Initiator.RUNNER, S.STOPPED),
                    "done": (Initiator.RUNNER, S.FINISHED),
                    "refuse": (Initiator.HANDLER, S.FAILED),
                }[ask]
                check_sweep_transition(state, target, by)
                state = target
        except Conflict as refused:
            assert state is before
            assert f"The sweep is {state.value}" in str(refused)
            continue
        if asked:
            assert state in {S.STOPPING, S.STOPPED, S.FINISHED}
        if before in ENDED:
            pytest.fail(f"{ask} moved a sweep that was {before}")


def test_extra_data_may_change_only_while_waiting_or_serial() -> None:
    check_extra_change(S.WAITING, 8)
    check_extra_change(S.RUNNING, 1)
    for parallel in (2, None):
        with pytest.raises(Conflict, match="running in parallel"):
            check_extra_change(S.RUNNING, parallel)
    for state in sorted(ALL - {S.WAITING, S.RUNNING}):
        with pytest.raises(Conflict, match=f"is {state.value}"):
            check_extra_change(state, 1)


GOOD: dict[str, Any] = {"name": "reindex", "type": "search.reindex", "total": 10**10}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"total": 1},
        {"total": None, "items": "https://example.com/ids.txt", "partitions": 8},
        {"rate": 500, "parallel": 64, "errors": 0, "partitions": 64},
        {"rate": 0.001},
        {"rate": 1_000_000},
        {"name": "x" * 128},
        {"name": "202a"},
    ],
)
def test_a_valid_definition_is_accepted(change: dict[str, Any]) -> None:
    wanted = GOOD | change
    definition = SweepDefinition(**wanted)
    assert {key: getattr(definition, key) for key in wanted} == wanted
    assert msgspec.json.decode(msgspec.json.encode(definition), type=SweepDefinition) == definition


@pytest.mark.parametrize(
    ("field", "change", "says"),
    [
        ("name", {"name": ""}, "not empty"),
        ("name", {"name": "  "}, "not empty"),
        ("name", {"name": 7}, "not empty"),
        ("name", {"name": "x" * 129}, "129 characters are more than 128"),
        ("name", {"name": "two\nlines"}, "control characters"),
        ("name", {"name": " padded"}, "spaces at its ends"),
        ("name", {"name": "12345"}, "taken for an id"),
        ("type", {"type": ""}, "not empty"),
        ("total", {"total": 0}, "from 1 to"),
        ("total", {"total": -5}, "from 1 to"),
        ("total", {"total": 2**63}, "from 1 to"),
        ("total", {"total": 1.5}, "whole number"),
        ("total", {"total": True}, "whole number"),
        ("total", {"total": "10"}, "whole number"),
        ("total", {"total": None}, "either a total or items"),
        ("total", {"items": "ids.txt"}, "either a total or items"),
        ("items", {"total": None, "items": " "}, "not empty"),
        ("rate", {"rate": 0}, "from 0.001 to 1,000,000, not 0"),
        ("rate", {"rate": -3}, "from 0.001"),
        ("rate", {"rate": math.nan}, "from 0.001"),
        ("rate", {"rate": math.inf}, "from 0.001"),
        ("rate", {"rate": True}, "must be a number"),
        ("rate", {"rate": "fast"}, "must be a number"),
        ("parallel", {"parallel": 0}, "from 1 to 10,000"),
        ("parallel", {"parallel": 10_001}, "from 1 to 10,000"),
        ("parallel", {"parallel": 3, "partitions": 4}, "less than the 4 partitions"),
        ("errors", {"errors": -1}, "from 0"),
        ("errors", {"errors": 0.5}, "whole number"),
        ("partitions", {"partitions": 0}, "from 1 to 1,024"),
        ("partitions", {"partitions": 1_025}, "from 1 to 1,024"),
        ("partitions", {"partitions": "2"}, "whole number"),
        ("partitions", {"partitions": 5, "total": 4}, "more than the 4 items"),
    ],
)
def test_an_invalid_definition_is_refused_with_its_field(
    field: str, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(WrongUse) as refused:
        SweepDefinition(**(GOOD | change))
    assert str(refused.value).startswith(f"{field}: ")
    assert says in str(refused.value)
    assert refused.value.details["field"] == field


def test_a_decoded_invalid_definition_is_refused_with_its_field() -> None:
    with pytest.raises(WrongUse, match=r"^rate: "):
        msgspec.json.decode(
            b'{"name": "a", "type": "t", "total": 1, "rate": 0}', type=SweepDefinition
        )


@given(
    first=st.integers(0, 10**10),
    total=st.integers(1, 10**10),
    partitions=st.integers(1, 1_024),
)
def test_partitions_cover_every_index_once_and_are_even(
    first: int, total: int, partitions: int
) -> None:
    partitions = min(partitions, total)
    parts = split_into_partitions(first, first + total, partitions)
    assert len(parts) == partitions
    assert parts[0].first == first
    assert parts[-1].end == first + total
    assert all(one.end == two.first for one, two in pairwise(parts))
    sizes = [part.end - part.first for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@pytest.mark.parametrize(("total", "partitions"), [(3, 4), (3, 0), (0, 1)])
def test_more_partitions_than_items_are_refused(total: int, partitions: int) -> None:
    with pytest.raises(WrongUse, match=r"^partitions: "):
        split_into_partitions(5, 5 + total, partitions)


@given(parallel=st.integers(1, 10_000), partitions=st.integers(1, 1_024))
def test_shares_of_parallel_add_up(parallel: int, partitions: int) -> None:
    partitions = min(parallel, partitions)
    shares = [share_of_parallel(parallel, partitions, number) for number in range(partitions)]
    assert sum(shares) == parallel
    assert min(shares) >= 1
    assert max(shares) - min(shares) <= 1


def test_running_partitions_share_the_rate() -> None:
    assert share_of_rate(500, 4) == 125
    assert share_of_rate(500, 0) == 500
    assert share_of_rate(None, 4) is None


@pytest.mark.parametrize(
    ("setting", "running", "live", "cap"),
    [(10, 7, 3, 3), (2, 7, 3, 2), (10, 6, 3, 2), (10, 1, 3, 1), (10, 0, 3, 0), (10, 4, 0, 4)],
)
def test_a_node_runs_its_even_share(setting: int, running: int, live: int, cap: int) -> None:
    assert node_partition_limit(setting, running, live) == cap


@given(setting=st.integers(0, 100), running=st.integers(0, 1_000), live=st.integers(1, 50))
def test_node_limits_add_up_to_all_partitions(setting: int, running: int, live: int) -> None:
    cap = node_partition_limit(setting, running, live)
    assert cap <= setting
    if cap < setting:
        assert cap * live >= running
        assert max(0, cap - 1) * live < running or running == 0


def test_the_budget_is_spent_by_its_last_error() -> None:
    assert spent_budget_reason(9, 0, 10) is None
    assert spent_budget_reason(10, 0, 10) == (
        "the error budget of 10 is spent: 10 items failed since the start"
    )
    assert spent_budget_reason(10**9, 0, None) is None


def test_a_restarted_sweep_has_its_whole_budget_again() -> None:
    assert spent_budget_reason(10, 10, 10) is None
    assert spent_budget_reason(19, 10, 10) is None
    assert spent_budget_reason(20, 10, 10) is not None


@pytest.mark.parametrize("budget", [0, 1])
def test_budgets_of_zero_and_one_stop_at_the_first_error(budget: int) -> None:
    assert spent_budget_reason(0, 0, budget) is None
    assert spent_budget_reason(1, 0, budget) is not None


def test_partitions_add_up() -> None:
    whole = sum_progress(
        [
            PartitionProgress(0, 100, 40, 1, 10.0),
            PartitionProgress(100, 200, 200, 2, 99.0),  # finished: its last speed does not count
            PartitionProgress(200, 300, 220, 0, 10.0),
        ]
    )
    assert (whole.total, whole.done, whole.errors, whole.speed) == (300, 160, 3, 20.0)
    assert whole.eta == 8.0  # the slower one: 80 items at 10/s


def test_waiting_partitions_count_in_the_eta() -> None:
    whole = sum_progress(
        [PartitionProgress(0, 100, 50, 0, 10.0), PartitionProgress(100, 200, 100, 0, 0.0)]
    )
    assert whole.eta == 15.0


def test_there_is_no_eta_without_speed_and_it_is_zero_at_the_end() -> None:
    assert sum_progress([PartitionProgress(0, 100, 50, 0, 0.0)]).eta is None
    assert sum_progress([PartitionProgress(0, 100, 50, 0, 1e-300)]).eta is None
    assert sum_progress([PartitionProgress(0, 100, 100, 0, 0.0)]).eta == 0.0
