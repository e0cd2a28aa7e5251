"""The window: exact counts, bounded memory, few checkpoints, and refusal of impossible calls."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.domain.sweeps.partition import Checkpoint
from drumline.domain.sweeps.window import Window


@settings(max_examples=60)
@given(
    retries=st.integers(0, 2),
    size=st.integers(1, 40),
    failing_attempts=st.lists(st.integers(0, 4), min_size=1, max_size=120),
    rng=st.randoms(use_true_random=False),
)
def test_retries_and_crashes_leave_an_exact_count_of_errors(
    retries: int, size: int, failing_attempts: list[int], rng: random.Random
) -> None:
    """A simulated runner: each item fails a number of times, is retried, and then counted."""
    total = len(failing_attempts)
    stored = Checkpoint(0, 0, ())
    named: list[int] = []
    seen: set[int] = set()
    while stored.start < total:
        now = 0.0
        window = Window(stored.start, total, size, now=now, errors=stored.errors)
        attempts = dict.fromkeys(window.take(rng.randint(1, size)), 0)
        lives_for = rng.randint(5, 400)
        while not window.finished and lives_for:
            lives_for -= 1
            if attempts:
                index = rng.choice(list(attempts))
                attempts[index] += 1
                seen.add(index)
                if attempts[index] > failing_attempts[index]:
                    assert window.mark_done(index)
                    del attempts[index]
                elif attempts[index] > retries:
                    assert window.mark_failed(index)
                    del attempts[index]
            attempts |= dict.fromkeys(window.take(rng.randint(0, 3)), 0)
            now += rng.choice([0.0, 0.6])
            if window.checkpoint_due(now):
                stored = window.checkpoint(now)
                named += stored.failed
                window.confirm_stored(stored.start)
    assert seen == set(range(total))
    hopeless = [index for index, failing in enumerate(failing_attempts) if failing > retries]
    assert named == hopeless
    assert stored.errors == len(hopeless)


@pytest.mark.parametrize("size", [1_000, 30_000])
def test_marks_before_the_start_are_freed(size: int) -> None:
    """With windows large enough to free marks, which the model does not reach."""
    rng = random.Random(size)
    first, total = 10**10 - 100_000, 10**10
    window = Window(first, total, size, now=0.0, checkpoint_seconds=1e9)
    running: list[int] = []
    ended = bytearray(total - first + 1)  # the last one is a sentinel
    failures: list[int] = []
    named: list[int] = []
    while not window.finished:
        running += window.take(rng.randint(1, size))
        if rng.random() < 0.5:
            rng.shuffle(running)
        for index in running[: len(running) // 2 + 1]:
            if index % 1_000 == 7:
                assert window.mark_failed(index)
                failures.append(index)
            else:
                assert window.mark_done(index)
            ended[index - first] = 1
        del running[: len(running) // 2 + 1]
        assert window.start == first + ended.find(0)
        late = rng.randrange(first, window.start + 1)
        assert late == window.start or not window.mark_failed(late)  # its mark may have been freed
        assert sys.getsizeof(window._marks) <= 3 * size + 10_000
        if window.checkpoint_due(0.0):
            checkpoint = window.checkpoint(0.0)
            named += checkpoint.failed
            window.confirm_stored(checkpoint.start)
    assert not ended.count(0, 0, -1)
    assert named == sorted(failures) == [i for i in range(first, total) if i % 1_000 == 7]


def peak(total: int) -> int:
    """The peak memory of a window, in bytes, while 200,000 of `total` items are done."""
    tracemalloc.start()
    try:
        window = Window(0, total, 5_000, now=0.0)
        while window.start < min(total, 200_000):
            taken = window.take(1_000)
            window.mark_range_done(taken.start, taken.stop)
            if window.checkpoint_due(0.0):
                window.confirm_stored(window.checkpoint(0.0).start)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_flat_from_ten_thousand_items_to_ten_billion() -> None:
    assert peak(10**10) <= peak(10**4) + 16_384


def test_the_number_of_checkpoints_depends_on_the_window_size() -> None:
    window = Window(0, 10**10, 10_000, now=0.0)
    flushes = 0
    while window.start < 1_000_000:
        taken = window.take(500)
        window.mark_range_done(taken.start, taken.stop)
        if window.checkpoint_due(0.0):
            flushes += 1
            window.confirm_stored(window.checkpoint(0.0).start)
    assert flushes == 1_000_000 / (10_000 / 2)


def test_a_late_confirmation_of_an_older_checkpoint_has_no_effect() -> None:
    window = Window(0, 100, 10, now=0.0)
    window.take(10)
    window.mark_range_done(0, 3)
    older = window.checkpoint(0.0)
    window.mark_range_done(3, 8)
    window.confirm_stored(window.checkpoint(0.0).start)
    window.confirm_stored(older.start)
    assert window.stored == 8
    assert window.take(100) == range(10, 18)


def test_failures_between_two_checkpoints_are_kept_for_the_second() -> None:
    window = Window(0, 100, 10, now=0.0)
    window.take(10)
    for index in (0, 1, 5):  # 5 is beyond the start
        window.mark_failed(index)
    first = window.checkpoint(0.0)
    window.mark_range_done(2, 4)
    window.mark_failed(4)
    window.confirm_stored(first.start)
    second = window.checkpoint(0.0)
    assert first == Checkpoint(2, 2, (0, 1))
    assert second == Checkpoint(6, 4, (4, 5))


def test_a_lost_checkpoint_does_not_leave_the_window_full() -> None:
    window = Window(0, 100, 10, now=0.0, checkpoint_seconds=1.0)
    taken = window.take(10)
    window.mark_range_done(taken.start, taken.stop)
    window.checkpoint(0.0)  # never confirmed
    assert window.room == 0
    assert not window.checkpoint_due(0.9)
    assert window.checkpoint_due(1.0)
    window.confirm_stored(window.checkpoint(1.0).start)
    assert window.take(100) == range(10, 20)


def test_impossible_calls_are_refused() -> None:
    window = Window(10, 100, 10, now=0.0)
    window.take(5)
    window.mark_done(10)
    with pytest.raises(ValueError, match="item 15 was never started"):
        window.mark_done(15)
    with pytest.raises(ValueError, match="item 15 was never started"):
        window.mark_range_done(12, 16)
    with pytest.raises(ValueError, match="start 12 was never in a checkpoint"):
        window.confirm_stored(12)
    with pytest.raises(ValueError, match="item 10 is not taken"):
        window.give_back(10)
    assert (window.start, window.next, window.stored) == (11, 15, 10)


@pytest.mark.parametrize("behind", [3, 10_000])
def test_a_range_that_begins_before_the_start_still_moves_it(behind: int) -> None:
    """The first items had ended before; the marks of many of them have been freed."""
    window = Window(0, 100_000, 50_000, now=0.0)
    window.take(behind + 10)
    window.mark_range_done(0, behind)
    assert window.mark_range_done(0, behind + 5) == 5
    assert window.start == behind + 5
    assert window.mark_range_done(0, behind) == 0


def test_failures_inside_a_range_stay_failures() -> None:
    """A runner reports each failure at once, and then the whole range as done."""
    window = Window(0, 100, 50, now=0.0)
    window.take(10)
    for index in (3, 4, 9):
        window.mark_failed(index)
    assert window.mark_range_done(0, 10) == 7
    assert window.checkpoint(0.0) == Checkpoint(10, 3, (3, 4, 9))


def test_a_second_report_of_an_item_has_no_effect() -> None:
    """The item timed out and was counted; then its thread ended, beyond the start."""
    window = Window(0, 100, 50, now=0.0)
    window.take(3)
    assert window.mark_failed(1)
    assert not window.mark_done(1)
    assert not window.mark_failed(1)
    window.mark_done(0)
    window.mark_done(2)
    assert window.checkpoint(0.0) == Checkpoint(3, 1, (1,))


def test_a_smaller_window_starts_no_item_until_the_stored_start_is_close() -> None:
    window = Window(0, 1_000, 100, now=0.0)
    assert window.take(60) == range(60)
    window.resize(10)
    assert not window.take(1)
    window.mark_range_done(0, 55)
    window.confirm_stored(window.checkpoint(0.0).start)
    assert window.take(100) == range(60, 65)


@pytest.mark.parametrize(("start", "end", "size"), [(5, 4, 1), (-1, 4, 1), (0, 4, 0)])
def test_an_invalid_window_is_refused(start: int, end: int, size: int) -> None:
    with pytest.raises(ValueError, match="window"):
        Window(start, end, size, now=0.0)
