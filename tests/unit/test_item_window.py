"""The window of a partition's items: no index is skipped or handed out twice."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.domain.sweeps.partition import (
    MAX_LOG_LINES,
    Checkpoint,
    PartitionDirectives,
    PartitionInfo,
)
from drumline.errors import Conflict, WrongUse
from drumline.runner.sweep.item_window import SETTLE_SECONDS, ItemWindow

DIRECTIVES = PartitionDirectives(
    stop=False, rate=None, parallel=1, serial=True, budget=None, errors_at_start=0, other_errors=0
)


def directives(**changes: Any) -> PartitionDirectives:
    values = {name: getattr(DIRECTIVES, name) for name in DIRECTIVES.__struct_fields__}
    return PartitionDirectives(**values | changes)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def new_window(
    end: int, start: int = 0, directives: PartitionDirectives = DIRECTIVES, **fields: Any
) -> tuple[ItemWindow, Clock]:
    values: dict[str, Any] = {"errors": 0, "stuck": (), "extra": None, "source": None, **fields}
    partition = PartitionInfo(
        sweep_id=1, name="s", number=0, end=end, start=start, directives=directives, **values
    )
    clock = Clock()
    return ItemWindow(1, 1, partition, clock=clock), clock


def store_checkpoint(
    window: ItemWindow, clock: Clock, directives: PartitionDirectives = DIRECTIVES
) -> Checkpoint | None:
    """Store the next checkpoint, if there is one."""
    checkpoint = window.next_checkpoint(clock(), final=True)
    if checkpoint is not None:
        window.checkpoint_stored(checkpoint.start, directives)
    return checkpoint


STEP = st.one_of(
    st.tuples(st.just("take"), st.integers(1, 40)),
    st.tuples(st.just("report"), st.integers(0, 10), st.integers(0, 40)),
    st.tuples(st.just("fail"), st.integers(0, 10)),
    st.tuples(st.just("checkpoint"), st.booleans()),
)


@settings(max_examples=200)
@given(total=st.integers(1, 300), steps=st.lists(STEP, max_size=60))
def test_every_index_runs_once_and_all_items_before_the_start_are_done(
    total: int, steps: list[Any]
) -> None:
    window, clock = new_window(total)
    taken: list[range] = []
    done_items: set[int] = set()
    failed: set[int] = set()
    stored = 0

    def check(checkpoint: Checkpoint | None) -> None:
        nonlocal stored
        if checkpoint is not None:
            assert checkpoint.start >= stored
            assert set(range(checkpoint.start)) <= done_items | failed, (
                "every item before the start is done"
            )
            stored = checkpoint.start

    def report(block: range, done: int) -> None:
        assert done_items.isdisjoint(block), "no index is handed out twice"
        done = max(done, block.start + (block.start in failed))
        done_items.update(range(block.start, done))
        window.finish_block(block, done)

    def step(what: str, *args: Any) -> None:
        match what:
            case "take":
                if block := window.take_items(args[0]):
                    taken.append(block)
            case "report" if taken:
                block = taken.pop(args[0] % len(taken))
                report(block, block.start + min(len(block), args[1]))
            case "fail" if taken:
                item = taken[args[0] % len(taken)].start
                failed.add(item)
                window.mark_failed(item, "it failed")
            case "checkpoint":
                checkpoint = window.next_checkpoint(clock(), final=True)
                if checkpoint is not None:
                    window.checkpoint_stored(checkpoint.start, DIRECTIVES if args[0] else None)
                    check(checkpoint if args[0] else None)

    for what, *args in steps:
        step(what, *args)
    while not (window.is_exhausted() and not taken):
        if block := window.take_items(7):
            taken.append(block)
        elif taken:
            report(taken[0], taken.pop(0).stop)
        clock.now += 1
        check(store_checkpoint(window, clock))
    check(store_checkpoint(window, clock))
    assert done_items == set(range(total))
    assert window.result().done and window.is_stored()
    assert window.result().errors == len(failed)


def test_items_given_back_are_taken_first_and_count_against_the_rate() -> None:
    window, clock = new_window(1000, directives=directives(rate=10.0))
    clock.now = 5.0
    block = window.take_items(100)
    assert block == range(2), "the bucket holds a tenth of a second, and one more"
    window.finish_block(block, 1)
    assert not window.take_items(100)
    clock.now = 5.2
    assert window.take_items(100) == range(1, 2)


def test_no_item_starts_beyond_the_stored_start_and_the_window() -> None:
    window, clock = new_window(10**10)
    assert window.take_items(10**9) == range(16)
    assert not window.take_items(1)
    window.finish_block(range(16), 16)
    assert not window.take_items(1), "done, but not stored"
    clock.now = 0.1
    assert store_checkpoint(window, clock) is not None
    assert window.take_items(10**9) == range(16, 16 + 1600), "ten times the measured speed"


def test_a_checkpoint_is_sent_when_half_a_window_is_done_or_a_second_has_passed() -> None:
    window, clock = new_window(10**6)
    woken: list[int] = []
    window.on_checkpoint_due = lambda: woken.append(1)
    window.finish_block(window.take_items(7), 7)
    assert not woken and window.next_checkpoint(clock()) is None
    window.finish_block(window.take_items(1), 8)
    assert woken
    first = window.next_checkpoint(clock())
    assert first is not None and first.start == 8
    clock.now = 10.0
    assert window.next_checkpoint(clock()) is None, "the first one is not answered"
    window.checkpoint_stored(8, DIRECTIVES)
    assert window.next_checkpoint(clock()) is not None, (
        "without progress too: its answer brings the directives"
    )


def test_a_checkpoint_that_could_not_be_stored_is_repeated() -> None:
    window, clock = new_window(10)
    window.log(3, "a line")
    window.extra  # noqa: B018  # it can be read
    window.change_extra({"n": 1})
    window.finish_block(window.take_items(2), 2)
    first = window.next_checkpoint(clock(), final=True)
    assert first is not None
    window.checkpoint_stored(first.start, None)
    second = window.next_checkpoint(clock(), final=True)
    assert second is not None
    assert (second.start, second.log, second.extra) == (2, first.log, '{"n":1}')
    window.checkpoint_stored(1, DIRECTIVES)
    assert not window.is_stored(), "the answer to a checkpoint of an earlier run is ignored"
    window.checkpoint_stored(2, DIRECTIVES)
    assert window.is_stored()


def test_extra_data_is_stored_together_with_the_items_that_set_it() -> None:
    window, clock = new_window(100)
    block = window.take_items(10)
    window.change_extra("half way")
    window.mark_done(range(5))
    checkpoint = store_checkpoint(window, clock)
    assert checkpoint is not None
    assert (checkpoint.start, checkpoint.extra) == (0, None), "neither without the other"
    window.finish_block(block, 10)
    checkpoint = store_checkpoint(window, clock)
    assert checkpoint is not None
    assert (checkpoint.start, checkpoint.extra) == (10, '"half way"')
    window.finish_block(window.take_items(1), 11)
    checkpoint = store_checkpoint(window, clock)
    assert checkpoint is not None and checkpoint.extra is None


def test_done_items_of_a_running_block_are_stored() -> None:
    window, clock = new_window(100)
    window.take_items(10)
    window.mark_done(range(5))
    checkpoint = store_checkpoint(window, clock)
    assert checkpoint is not None and checkpoint.start == 5


def test_the_error_budget_counts_the_errors_of_all_partitions() -> None:
    window, clock = new_window(
        100, directives=directives(budget=5, errors_at_start=2, other_errors=3, parallel=2)
    )
    block = window.take_items(10)
    for item in block[:3]:
        window.mark_failed(item, "no")
        window.mark_failed(item, "no")
    closed_before = window.closed
    window.mark_failed(3, "no")
    assert (closed_before, window.closed) == (False, True)
    assert window.is_exhausted()
    assert not window.take_items(1)
    window.finish_block(block, 4)
    checkpoint = store_checkpoint(
        window, clock, directives(budget=5, errors_at_start=2, other_errors=3)
    )
    assert checkpoint is not None
    assert (checkpoint.start, checkpoint.errors, checkpoint.failed) == (4, 4, (0, 1, 2, 3))
    result = window.result()
    assert not result.done and not result.stopped_by_handler
    assert "error budget of 5" in (result.reason or "")


def test_items_that_could_not_be_stopped_fail_without_a_start() -> None:
    window, clock = new_window(8, start=1, stuck=(0, 1, 4, 7))
    seen = []
    while block := window.take_items(100):
        seen += list(block)
        window.finish_block(block, block.stop)
    assert seen == [2, 3, 5, 6]
    checkpoint = store_checkpoint(window, clock)
    assert checkpoint is not None
    assert (checkpoint.start, checkpoint.errors, checkpoint.failed) == (8, 3, (1, 4, 7))
    assert window.result().done


def test_a_stop_by_an_operator_leaves_the_reason_empty() -> None:
    window, clock = new_window(100)
    store_checkpoint(window, clock, directives(stop=True))
    assert window.closed
    assert (window.result().done, window.result().reason) == (False, None)


def test_items_given_back_run_for_a_second_after_a_stop() -> None:
    window, clock = new_window(1000)
    first, second = window.take_items(6), window.take_items(2)
    window.finish_block(second, 8)
    window.finish_block(first, 1)
    store_checkpoint(window, clock, directives(stop=True))
    assert window.closed and not window.is_exhausted()
    assert window.take_items(3) == range(1, 4)
    window.finish_block(range(1, 4), 2)
    assert [window.take_items(9), window.take_items(9)] == [range(4, 6), range(2, 4)]
    window.finish_block(range(4, 6), 6)
    assert window.is_exhausted() and not window.take_items(1), "no new item starts"
    window.finish_block(range(2, 4), 4)
    assert window.result().start == 8


@pytest.mark.parametrize("how", ["late", "aborted", "another reason"])
def test_items_given_back_do_not_run_after_that(how: str) -> None:
    window, clock = new_window(1000)
    window.finish_block(window.take_items(10), 4)
    store_checkpoint(window, clock, directives(stop=True))
    match how:
        case "late":
            clock.now += SETTLE_SECONDS
        case "aborted":
            window.abort()
        case _:
            window.close("another worker has acquired it")
    assert window.is_exhausted() and not window.take_items(1)
    assert window.result().start == 4


def test_the_first_reason_of_a_stop_is_kept() -> None:
    window, _ = new_window(100)
    window.stop("I have seen enough")
    window.close("another")
    assert (window.result().reason, window.result().stopped_by_handler) == (
        "I have seen enough",
        True,
    )


def test_the_log_is_bounded_and_counts_the_lines_it_dropped() -> None:
    window, clock = new_window(10)
    for n in range(MAX_LOG_LINES + 5):
        window.log(0, f"{n} " + "x" * 2000)
    window.log(0, "half a character: \ud800")
    checkpoint = store_checkpoint(window, clock)
    assert checkpoint is not None
    assert len(checkpoint.log) == MAX_LOG_LINES + 1
    assert checkpoint.log[-1].message == "6 lines were left out"
    assert max(len(line.message) for line in checkpoint.log) == 1000


@pytest.mark.parametrize("changed", [directives(parallel=2), directives(serial=False)])
def test_extra_data_cannot_be_set_by_items_that_run_in_parallel(
    changed: PartitionDirectives,
) -> None:
    window, _ = new_window(10, directives=changed)
    with pytest.raises(Conflict, match="parallel 1"):
        window.change_extra(1)


@pytest.mark.parametrize("value", [{1, object()}, "x" * 70_000, float("nan").hex, "\ud800"])
def test_extra_data_must_be_json_and_small(value: object) -> None:
    window, _ = new_window(10)
    with pytest.raises(WrongUse, match="extra data"):
        window.change_extra(value)
    assert window.extra is None


def test_a_new_rate_and_parallel_take_effect() -> None:
    window, clock = new_window(10**6)
    store_checkpoint(window, clock, directives(rate=100.0, parallel=4))
    assert window.parallel == 4
    assert not window.wait_for_items(1, 1), "the number at a time has changed"
    clock.now = 100.0
    assert len(window.wait_for_items(1000, 4)) == 11
    store_checkpoint(window, clock, directives(rate=None, parallel=None))
    assert window.parallel == 1
