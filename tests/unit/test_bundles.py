"""Bundle sizes: large for quick handlers, one for slow and unknown handlers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.domain.dispatch.bundles import GROWTH, RuntimeEstimates

BUDGET = 0.02
MAX_TASKS = 200

timings = st.lists(
    st.tuples(st.integers(-2, 2**63), st.floats(allow_nan=True, allow_infinity=True)), max_size=20
)


@given(timings)
def test_a_bundle_has_one_to_max_tasks_whatever_is_reported(
    reports: list[tuple[int, float]],
) -> None:
    estimates = RuntimeEstimates(BUDGET, MAX_TASKS)
    for runs, seconds in reports:
        estimates.record_runs("k", runs, seconds)
        assert 1 <= estimates.bundle_size("k") <= MAX_TASKS
        assert not math.isnan(estimates.expected_seconds("k"))
        assert estimates.expected_seconds("k") >= 0


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(1e-9, 100)), min_size=1, max_size=20))
def test_a_bundle_of_more_than_one_fits_into_the_budget(reports: list[tuple[int, float]]) -> None:
    estimates = RuntimeEstimates(BUDGET, MAX_TASKS)
    for runs, seconds in reports:
        estimates.record_runs("k", runs, seconds * runs)
    size = estimates.bundle_size("k")
    assert size == 1 or size * estimates.expected_seconds("k") <= BUDGET * (1 + 1e-9)
    assert size <= 1 + GROWTH * sum(runs for runs, _ in reports)


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=20))
def test_the_mean_is_between_the_extremes_and_never_below_the_latest_slow_run(
    durations: list[float],
) -> None:
    estimates = RuntimeEstimates(BUDGET, MAX_TASKS)
    for number, seconds in enumerate(durations):
        before = estimates.expected_seconds("k") if number else seconds
        estimates.record_runs("k", 1, seconds)
        mean = estimates.expected_seconds("k")
        assert min(durations) * (1 - 1e-9) <= mean <= max(durations) * (1 + 1e-9)
        if seconds > before:
            assert mean == seconds, "a slower run counts immediately"


def test_an_unknown_handler_gets_one_task_and_no_second_bundle() -> None:
    estimates = RuntimeEstimates(BUDGET, MAX_TASKS)
    assert estimates.bundle_size("never seen") == 1
    assert estimates.expected_seconds("never seen") == math.inf
    assert not estimates.is_quick("never seen")


def test_bundles_grow_with_the_number_of_measured_runs() -> None:
    estimates = RuntimeEstimates(BUDGET, MAX_TASKS)
    sizes = []
    for _ in range(4):
        size = estimates.bundle_size("k")
        sizes.append(size)
        estimates.record_runs("k", size, size * 1e-6)
    assert sizes == [1, 9, 81, MAX_TASKS]
    assert estimates.is_quick("k")


def test_a_slow_run_shrinks_bundles_to_one_and_quick_runs_let_them_grow() -> None:
    estimates = RuntimeEstimates(BUDGET, MAX_TASKS)
    estimates.record_runs("k", 1000, 0.001)
    assert estimates.bundle_size("k") == MAX_TASKS
    estimates.record_runs("k", 1, 5.0)
    assert estimates.bundle_size("k") == 1
    assert not estimates.is_quick("k")
    sizes = []
    for _ in range(60):
        estimates.record_runs("k", 1, 1e-6)
        sizes.append(estimates.bundle_size("k"))
    assert sizes == sorted(sizes)
    assert sizes[-1] == MAX_TASKS


def test_handlers_do_not_share_their_means() -> None:
    estimates = RuntimeEstimates(BUDGET, MAX_TASKS)
    estimates.record_runs("quick", 100, 0.0001)
    estimates.record_runs("slow", 1, 9.0)
    assert (estimates.bundle_size("quick"), estimates.bundle_size("slow")) == (MAX_TASKS, 1)


@pytest.mark.parametrize("seconds", [0.0, 5e-324, 1e-310])
def test_a_time_too_short_to_measure_counts_as_quick(seconds: float) -> None:
    estimates = RuntimeEstimates(BUDGET, MAX_TASKS)
    estimates.record_runs("k", 1000, seconds)
    assert estimates.bundle_size("k") == MAX_TASKS
