"""The window compared with a model: the set of items done, and the number of runs of each item."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drumline.domain.sweeps.partition import Checkpoint
from drumline.domain.sweeps.window import Window

FLUSH_EVERY = 1.0


class Sweep(RuleBasedStateMachine):
    """A partition that is taken, ended in any order, flushed, lost, resized, stopped and resumed.

    The model keeps plain sets over all indexes. What is stored is kept apart from the window, as
    the database would, and is all that a crash leaves.
    """

    @initialize(
        first=st.integers(0, 50),
        length=st.sampled_from([200, 60, 7, 1, 0]),
        size=st.integers(1, 20),
        kept=st.sampled_from([3, 1_000]),
        errors=st.integers(0, 5),
    )
    def begin(self, first: int, length: int, size: int, kept: int, errors: int) -> None:
        self.first, self.end, self.size, self.kept = first, first + length, size, kept
        self.now = 100.0
        self.stored_start, self.stored_errors = first, errors
        self.errors_before = errors
        self.stored_failed: set[int] = set()
        self.runs: Counter[int] = Counter()
        self.ever_failed: set[int] = set()
        self.crashes: list[range] = []  # the items that each crash may repeat
        self.resume()

    def resume(self) -> None:
        self.window = Window(
            self.stored_start,
            self.end,
            self.size,
            now=self.now,
            errors=self.stored_errors,
            checkpoint_seconds=FLUSH_EVERY,
            max_failed_named=self.kept,
        )
        self.origin = self.stored_start
        self.running: set[int] = set()
        self.ended: set[int] = set()
        self.failures: set[int] = set()
        self.highest = self.stored_start  # the maximum of stored start + window
        self.moves = [self.stored_start]
        self.asked_at = self.now
        self.asked = self.stored_start
        self.in_flight: list[Checkpoint] = []
        self.raise_highest()

    def raise_highest(self) -> None:
        self.highest = max(self.highest, self.stored_start + self.size)

    def model_start(self) -> int:
        start = self.origin
        while start in self.ended:
            start += 1
        return start

    # The runner

    @rule(wanted=st.integers(0, 25))
    def take(self, wanted: int) -> None:
        first = max(self.running | self.ended, default=self.origin - 1) + 1
        stop = min(first + wanted, self.window.stored + self.size, self.end)
        taken = self.window.take(wanted)
        assert list(taken) == list(range(first, stop))
        for index in taken:
            assert (
                index < self.stored_start + self.size
            )  # no item beyond the really stored start + window
            self.runs[index] += 1
        self.running |= set(taken)

    @precondition(lambda self: self.running)
    @rule(rng=st.randoms(use_true_random=False), count=st.integers(1, 12))
    def end_some(self, rng: random.Random, count: int) -> None:
        """End some running items in any order; one in four fails."""
        for index in rng.sample(sorted(self.running), min(count, len(self.running))):
            self.running.remove(index)
            self.ended.add(index)
            if rng.random() < 0.25:
                self.failures.add(index)
                assert self.window.mark_failed(index) is True
            else:
                assert self.window.mark_done(index) is True
            assert self.window.start == self.model_start()

    @rule(seed=st.integers(0, 2**32))
    def work(self, seed: int) -> None:
        """The usual steps of a runner, in one rule: hypothesis omits rules at random, and a sweep
        without any one of these steps soon stops progressing."""
        rng = random.Random(seed)
        for _ in range(rng.randint(1, 6)):
            self.take(rng.randint(1, 12))
            if self.running:
                self.end_some(rng, rng.randint(1, 12))
            if rng.random() < 0.3:
                self.done_range(rng.randrange(2**32))
            self.now += rng.choice([0.0, 0.0, 0.3, 1.0])
            self.checkpoints_are_due_by_the_rule()
            if rng.random() < 0.5:
                self.checkpoint()
            if self.in_flight and rng.random() < 0.6:
                self.commit(rng.randrange(3), heard=rng.random() < 0.8)

    @precondition(lambda self: self.running)
    @rule(seed=st.integers(0, 2**32))
    def done_range(self, seed: int) -> None:
        """Report any range of taken items, some of which may have ended before."""
        rng = random.Random(seed)
        low = rng.randint(self.origin, self.window.next)
        high = rng.randint(low, self.window.next)
        news = self.running & set(range(low, high))
        self.running -= news
        self.ended |= news
        assert self.window.mark_range_done(low, high) == len(news)
        assert self.window.start == self.model_start()

    @precondition(lambda self: self.ended)
    @rule(data=st.data(), well=st.booleans())
    def late_report(self, data: st.DataObject, well: bool) -> None:
        """A timed-out item ends later, or a failure is reported twice."""
        index = data.draw(st.sampled_from(sorted(self.ended)), label="ended item")
        assert (self.window.mark_done if well else self.window.mark_failed)(index) is False

    @rule(count=st.integers(1, 10))
    def give_back(self, count: int) -> None:
        """A stop: return the items that were taken last and have not started."""
        begin = max(self.window.start, self.window.next - count)
        tail = set(range(begin, self.window.next))
        if tail <= self.running:
            self.window.give_back(begin)
            self.running -= tail
            self.runs.subtract(tail)
        else:
            with pytest.raises(ValueError, match="has ended"):
                self.window.give_back(begin)

    # Checkpoints

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.window.start > self.window.stored)
    @rule()
    def checkpoint(self) -> None:
        checkpoint = self.window.checkpoint(self.now)
        start = self.model_start()
        passed = {index for index in self.failures if index < start}
        unstored = sorted(index for index in passed if index >= self.window.stored)
        assert checkpoint.start == start
        assert checkpoint.errors == self.errors_at_resume() + len(passed)
        assert set(checkpoint.failed) <= set(unstored)
        assert len(checkpoint.failed) <= self.kept
        assert list(checkpoint.failed) == sorted(checkpoint.failed)
        if len(unstored) <= self.kept and self.kept > 3:
            assert list(checkpoint.failed) == unstored
        self.asked, self.asked_at = start, self.now
        self.in_flight.append(checkpoint)

    def errors_at_resume(self) -> int:
        return self.errors_before + len({i for i in self.ever_failed if i < self.origin})

    @precondition(lambda self: self.in_flight)
    @rule(at=st.integers(0, 3), heard=st.booleans())
    def commit(self, at: int, heard: bool) -> None:
        """Commit a checkpoint, in any order; the confirmation may be lost."""
        checkpoint = self.in_flight.pop(at % len(self.in_flight))
        if checkpoint.start > self.stored_start:
            news = {index for index in checkpoint.failed if index >= self.stored_start}
            assert not news & self.stored_failed
            self.stored_failed |= news
            self.ever_failed |= {
                i for i in self.failures if self.stored_start <= i < checkpoint.start
            }
            self.stored_start, self.stored_errors = checkpoint.start, checkpoint.errors
            self.moves.append(checkpoint.start)
            self.raise_highest()
        if heard:
            self.window.confirm_stored(checkpoint.start)

    @precondition(lambda self: self.in_flight)
    @rule(at=st.integers(0, 3))
    def lose(self, at: int) -> None:
        self.in_flight.pop(at % len(self.in_flight))

    @rule(size=st.integers(1, 30))
    def resize(self, size: int) -> None:
        self.size = size
        self.window.resize(size)
        self.raise_highest()

    @precondition(lambda self: len(self.ended) > 5)
    @rule()
    def crash(self) -> None:
        """Lose all progress since the last commit, but no commit that was not confirmed."""
        self.crashes.append(range(self.stored_start, self.highest))
        self.resume()

    # Invariants

    @invariant()
    def agrees_with_the_model(self) -> None:
        window, start = self.window, self.model_start()
        assert window.start == start
        assert window.errors == self.errors_at_resume() + len(self.failures)
        assert window.idle == (not self.running)
        assert window.finished == (start == self.end)
        assert window.stored <= self.stored_start <= start
        assert window.room == max(0, min(self.end, window.stored + self.size) - window.next)
        assert self.moves == sorted(self.moves)

    @invariant()
    def checkpoints_are_due_by_the_rule(self) -> None:
        window, start = self.window, self.model_start()
        moved = start - self.asked
        expected = start > window.stored and (
            self.now - self.asked_at >= FLUSH_EVERY
            or moved >= self.size / 2
            or (start == self.end and moved > 0)
        )
        assert window.checkpoint_due(self.now) == expected

    @invariant()
    def repeats_lie_inside_one_window(self) -> None:
        allowed = Counter(index for crash in self.crashes for index in crash)
        for index, runs in self.runs.items():
            assert runs <= 1 + allowed[index]

    def teardown(self) -> None:
        """The sweep ends, every item has run, and every failure is counted once."""
        if not hasattr(self, "window"):
            return
        for _ in range(10_000):
            if self.window.finished:
                break
            self.take(7)
            for index in sorted(self.running, reverse=True):
                self.running.remove(index)
                self.ended.add(index)
                self.window.mark_done(index)
            self.now += FLUSH_EVERY
            if self.window.checkpoint_due(self.now):
                self.store_now()
        assert self.window.finished
        self.now += FLUSH_EVERY
        if self.window.checkpoint_due(self.now):
            self.store_now()
        assert self.window.stored == self.stored_start == self.end
        assert all(self.runs[index] >= 1 for index in range(self.first, self.end))
        assert self.stored_errors == self.errors_before + len(self.ever_failed)
        assert self.stored_failed <= self.ever_failed
        if self.kept > 3:
            assert self.stored_failed == self.ever_failed
        self.agrees_with_the_model()
        self.repeats_lie_inside_one_window()

    def store_now(self) -> None:
        checkpoint = self.window.checkpoint(self.now)
        news = {index for index in checkpoint.failed if index >= self.stored_start}
        self.stored_failed |= news
        self.ever_failed |= {i for i in self.failures if self.stored_start <= i < checkpoint.start}
        self.stored_start, self.stored_errors = checkpoint.start, checkpoint.errors
        self.window.confirm_stored(checkpoint.start)


TestSweep = Sweep.TestCase
TestSweep.settings = settings(
    max_examples=150,
    stateful_step_count=40,
)


@pytest.mark.parametrize("seed", range(40))
def test_long_walks(seed: int) -> None:
    """The same model with many more steps."""
    rng = random.Random(seed)
    sweep = Sweep()
    sweep.begin(
        first=rng.randint(0, 50),
        length=rng.randint(100, 400),
        size=rng.randint(1, 40),
        kept=rng.choice([3, 1_000]),
        errors=rng.randint(0, 5),
    )
    for _ in range(60):
        sweep.work(rng.randrange(2**32))
        match rng.randrange(12):
            case 0:
                sweep.crash()
            case 1:
                sweep.resize(rng.randint(1, 40))
            case 2:
                sweep.give_back(rng.randint(1, 10))
            case 3 if sweep.in_flight:
                sweep.lose(rng.randrange(3))
        sweep.agrees_with_the_model()
        sweep.checkpoints_are_due_by_the_rule()
    sweep.teardown()
