"""Stall detection compared with a naive form of the rule, over generated sequences of checks."""

from hypothesis import given
from hypothesis import strategies as st

from drumline.domain.dispatch.stall import StallState, observe_scan

LIMIT = 10


def detected(scans: list[tuple[int, int]], limit: int) -> list[bool]:
    state, stalls = StallState(), []
    for queued, finished in scans:
        state, stalled = observe_scan(state, queued, finished, limit)
        stalls.append(stalled)
    return stalls


def naive(scans: list[tuple[int, int]], limit: int) -> list[bool]:
    """A stall: growth in more than `limit` checks in a row without a finished task."""
    stalls, row, before = [], 0, (0, 0)
    for queued, finished in scans:
        row = row + 1 if queued > before[0] and finished == before[1] else 0
        stalls.append(row > limit)
        row = 0 if stalls[-1] else row
        before = (queued, finished)
    return stalls


steps = st.lists(st.tuples(st.integers(-1, 3), st.sampled_from([0, 0, 0, 0, 1])), max_size=60)


@given(steps, st.integers(1, 4))
def test_a_stall_is_detected_exactly_by_the_rule(
    changes: list[tuple[int, int]], limit: int
) -> None:
    scans, queued, finished = [], 0, 0
    for more, done in changes:
        queued, finished = max(0, queued + more), finished + done
        scans.append((queued, finished))
    assert detected(scans, limit) == naive(scans, limit)


def test_a_stall_takes_more_than_ten_checks_in_a_row() -> None:
    growing = [(n, 7) for n in range(1, 40)]
    stalls = detected([(0, 7), *growing], LIMIT)
    # The tenth growth is not more than ten; after a stall the count restarts.
    assert [n for n, stall in enumerate(stalls) if stall] == [11, 22, 33]


def test_one_finished_task_restarts_the_count() -> None:
    scans = [(n, 0) for n in range(1, 11)] + [(11, 1)] + [(n, 1) for n in range(12, 22)]
    assert not any(detected(scans, LIMIT))


def test_a_queue_that_does_not_grow_is_no_stall() -> None:
    assert not any(detected([(1000, 0)] * 50, LIMIT))
