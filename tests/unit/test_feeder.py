"""The feeder: whatever is taken, given back, failed and flushed, nothing is skipped or doubled."""

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

LIVE = PartitionDirectives(
    stop=False, rate=None, parallel=1, serial=True, budget=None, errors_at_start=0, other_errors=0
)


def live(**changes: Any) -> PartitionDirectives:
    values = {name: getattr(LIVE, name) for name in LIVE.__struct_fields__}
    return PartitionDirectives(**values | changes)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def feeder(
    end: int, start: int = 0, now: PartitionDirectives = LIVE, **facts: Any
) -> tuple[ItemWindow, Clock]:
    values: dict[str, Any] = {"errors": 0, "stuck": (), "extra": None, "source": None, **facts}
    part = PartitionInfo(
        sweep_id=1, name="s", number=0, end=end, start=start, directives=now, **values
    )
    clock = Clock()
    return ItemWindow(1, 1, part, clock=clock), clock


def flushed(feeder: ItemWindow, clock: Clock, now: PartitionDirectives = LIVE) -> Checkpoint | None:
    """Have a checkpoint stored, if there is one."""
    flush = feeder.flush(clock(), final=True)
    if flush is not None:
        feeder.flushed(flush.start, now)
    return flush


STEP = st.one_of(
    st.tuples(st.just("take"), st.integers(1, 40)),
    st.tuples(st.just("report"), st.integers(0, 10), st.integers(0, 40)),
    st.tuples(st.just("fail"), st.integers(0, 10)),
    st.tuples(st.just("flush"), st.booleans()),
)


@settings(max_examples=200)
@given(total=st.integers(1, 300), steps=st.lists(STEP, max_size=60))
def test_every_index_is_run_once_and_the_start_is_honest(total: int, steps: list[Any]) -> None:
    fed, clock = feeder(total)
    taken: list[range] = []
    over: set[int] = set()
    failed: set[int] = set()
    stored = 0

    def check(flush: Checkpoint | None) -> None:
        nonlocal stored
        if flush is not None:
            assert flush.start >= stored
            assert set(range(flush.start)) <= over | failed, "every item before the start is over"
            stored = flush.start

    def report(block: range, done: int) -> None:
        assert over.isdisjoint(block), "no index is handed out twice"
        done = max(done, block.start + (block.start in failed))
        over.update(range(block.start, done))
        fed.report(block, done)

    def step(what: str, *args: Any) -> None:
        match what:
            case "take":
                if block := fed.take_now(args[0]):
                    taken.append(block)
            case "report" if taken:
                block = taken.pop(args[0] % len(taken))
                report(block, block.start + min(len(block), args[1]))
            case "fail" if taken:
                item = taken[args[0] % len(taken)].start
                failed.add(item)
                fed.failed(item, "it failed")
            case "flush":
                flush = fed.flush(clock(), final=True)
                if flush is not None:
                    fed.flushed(flush.start, LIVE if args[0] else None)
                    check(flush if args[0] else None)

    for what, *args in steps:
        step(what, *args)
    while not (fed.is_over() and not taken):
        if block := fed.take_now(7):
            taken.append(block)
        elif taken:
            report(taken[0], taken.pop(0).stop)
        clock.now += 1
        check(flushed(fed, clock))
    check(flushed(fed, clock))
    assert over == set(range(total))
    assert fed.end().done and fed.is_stored()
    assert fed.end().errors == len(failed)


def test_what_was_given_back_is_taken_first_and_waits_for_the_rate() -> None:
    fed, clock = feeder(1000, now=live(rate=10.0))
    clock.now = 5.0
    block = fed.take_now(100)
    assert block == range(2), "a bucket of a tenth of a second, and one"
    fed.report(block, 1)
    assert not fed.take_now(100)
    clock.now = 5.2
    assert fed.take_now(100) == range(1, 2)


def test_no_item_starts_beyond_the_stored_start_and_the_window() -> None:
    fed, clock = feeder(10**10)
    assert fed.take_now(10**9) == range(16)
    assert not fed.take_now(1)
    fed.report(range(16), 16)
    assert not fed.take_now(1), "it is done, and not stored"
    clock.now = 0.1
    assert flushed(fed, clock) is not None
    assert fed.take_now(10**9) == range(16, 16 + 1600), "ten times the measured speed"


def test_a_checkpoint_is_sent_when_half_a_window_is_done_or_a_second_has_passed() -> None:
    fed, clock = feeder(10**6)
    woken: list[int] = []
    fed.wake = lambda: woken.append(1)
    fed.report(fed.take_now(7), 7)
    assert not woken and fed.flush(clock()) is None
    fed.report(fed.take_now(1), 8)
    assert woken
    first = fed.flush(clock())
    assert first is not None and first.start == 8
    clock.now = 10.0
    assert fed.flush(clock()) is None, "one at a time"
    fed.flushed(8, LIVE)
    assert fed.flush(clock()) is not None, "also when nothing has moved: it hears of news so"


def test_what_could_not_be_stored_is_said_again() -> None:
    fed, clock = feeder(10)
    fed.log(3, "a line")
    fed.extra  # noqa: B018  # it can be read
    fed.change_extra({"n": 1})
    fed.report(fed.take_now(2), 2)
    first = fed.flush(clock(), final=True)
    assert first is not None
    fed.flushed(first.start, None)
    second = fed.flush(clock(), final=True)
    assert second is not None
    assert (second.start, second.log, second.extra) == (2, first.log, '{"n":1}')
    fed.flushed(1, LIVE)
    assert not fed.is_stored(), "an answer to an earlier run is not the answer"
    fed.flushed(2, LIVE)
    assert fed.is_stored()


def test_extra_data_is_stored_with_the_items_that_made_it() -> None:
    fed, clock = feeder(100)
    block = fed.take_now(10)
    fed.change_extra("half way")
    fed.passed(range(5))
    flush = flushed(fed, clock)
    assert flush is not None
    assert (flush.start, flush.extra) == (0, None), "neither without the other"
    fed.report(block, 10)
    flush = flushed(fed, clock)
    assert flush is not None
    assert (flush.start, flush.extra) == (10, '"half way"')
    fed.report(fed.take_now(1), 11)
    flush = flushed(fed, clock)
    assert flush is not None and flush.extra is None


def test_items_of_a_long_block_count_as_they_pass() -> None:
    fed, clock = feeder(100)
    fed.take_now(10)
    fed.passed(range(5))
    flush = flushed(fed, clock)
    assert flush is not None and flush.start == 5


def test_the_budget_closes_it_at_the_last_error_of_all_partitions() -> None:
    fed, clock = feeder(100, now=live(budget=5, errors_at_start=2, other_errors=3, parallel=2))
    block = fed.take_now(10)
    for item in block[:3]:
        fed.failed(item, "no")
        fed.failed(item, "no")
    closed_before = fed.closed
    fed.failed(3, "no")
    assert (closed_before, fed.closed) == (False, True)
    assert fed.is_over()
    assert not fed.take_now(1)
    fed.report(block, 4)
    flush = flushed(fed, clock, live(budget=5, errors_at_start=2, other_errors=3))
    assert flush is not None
    assert (flush.start, flush.errors, flush.failed) == (4, 4, (0, 1, 2, 3))
    end = fed.end()
    assert not end.done and not end.stopped_by_handler
    assert "error budget of 5" in (end.reason or "")


def test_items_that_could_not_be_stopped_fail_without_being_begun() -> None:
    fed, clock = feeder(8, start=1, stuck=(0, 1, 4, 7))
    seen = []
    while block := fed.take_now(100):
        seen += list(block)
        fed.report(block, block.stop)
    assert seen == [2, 3, 5, 6]
    flush = flushed(fed, clock)
    assert flush is not None
    assert (flush.start, flush.errors, flush.failed) == (8, 3, (1, 4, 7))
    assert fed.end().done


def test_a_stop_from_outside_has_no_reason_of_its_own() -> None:
    fed, clock = feeder(100)
    flushed(fed, clock, live(stop=True))
    assert fed.closed
    assert (fed.end().done, fed.end().reason) == (False, None)


def test_a_stop_lets_what_was_given_back_be_run_for_a_second() -> None:
    fed, clock = feeder(1000)
    first, second = fed.take_now(6), fed.take_now(2)
    fed.report(second, 8)
    fed.report(first, 1)
    flushed(fed, clock, live(stop=True))
    assert fed.closed and not fed.is_over()
    assert fed.take_now(3) == range(1, 4)
    fed.report(range(1, 4), 2)
    assert [fed.take_now(9), fed.take_now(9)] == [range(4, 6), range(2, 4)]
    fed.report(range(4, 6), 6)
    assert fed.is_over() and not fed.take_now(1), "and nothing new"
    fed.report(range(2, 4), 4)
    assert fed.end().start == 8


@pytest.mark.parametrize("how", ["late", "aborted", "another reason"])
def test_and_not_for_longer(how: str) -> None:
    fed, clock = feeder(1000)
    fed.report(fed.take_now(10), 4)
    flushed(fed, clock, live(stop=True))
    match how:
        case "late":
            clock.now += SETTLE_SECONDS
        case "aborted":
            fed.abort()
        case _:
            fed.close("it belongs to another worker now")
    assert fed.is_over() and not fed.take_now(1)
    assert fed.end().start == 4


def test_the_first_reason_counts() -> None:
    fed, _ = feeder(100)
    fed.stop("I have seen enough")
    fed.close("another")
    assert (fed.end().reason, fed.end().stopped_by_handler) == ("I have seen enough", True)


def test_the_log_is_bounded_and_says_what_it_lost() -> None:
    fed, clock = feeder(10)
    for n in range(MAX_LOG_LINES + 5):
        fed.log(0, f"{n} " + "x" * 2000)
    fed.log(0, "half a character: \ud800")
    flush = flushed(fed, clock)
    assert flush is not None
    assert len(flush.log) == MAX_LOG_LINES + 1
    assert flush.log[-1].message == "6 lines were left out"
    assert max(len(line.message) for line in flush.log) == 1000


@pytest.mark.parametrize("now", [live(parallel=2), live(serial=False)])
def test_extra_data_is_not_changed_by_items_side_by_side(now: PartitionDirectives) -> None:
    fed, _ = feeder(10, now=now)
    with pytest.raises(Conflict, match="parallel 1"):
        fed.change_extra(1)


@pytest.mark.parametrize("value", [{1, object()}, "x" * 70_000, float("nan").hex, "\ud800"])
def test_extra_data_must_fit(value: object) -> None:
    fed, _ = feeder(10)
    with pytest.raises(WrongUse, match="extra data"):
        fed.change_extra(value)
    assert fed.extra is None


def test_another_rate_and_parallel_are_followed() -> None:
    fed, clock = feeder(10**6)
    flushed(fed, clock, live(rate=100.0, parallel=4))
    assert fed.parallel == 4
    assert not fed.take(1, 1), "not by so many at a time any more"
    clock.now = 100.0
    assert len(fed.take(1000, 4)) == 11
    flushed(fed, clock, live(rate=None, parallel=None))
    assert fed.parallel == 1
