"""Credit under lost, doubled and late messages: nothing twice, nothing held for ever."""

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol.credit import BundleReceiver, BundleSender

RESEND = 2.0


class Bundle(NamedTuple):
    number: int
    tasks: tuple[int, ...]


class Report(NamedTuple):
    """A Beat, or with `done` a Done."""

    received: int
    held: frozenset[int]
    done: frozenset[int] = frozenset()
    is_beat: bool = True


pick = st.integers(0, 1_000)


class Network(RuleBasedStateMachine):
    """A dispatcher's outbox, a worker's inbox, and between them whatever can happen."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.outbox: BundleSender[Bundle] = BundleSender()
        self.inbox = BundleReceiver()
        self.to_worker: list[Bundle] = []
        self.to_dispatcher: list[Report] = []
        self.sent: set[int] = set()
        self.accepted: list[int] = []
        self.working: set[int] = set()
        self.gone: set[int] = set()

    # --- the dispatcher ------------------------------------------------------------------------

    @rule(size=st.integers(1, 3))
    def send(self, size: int) -> None:
        tasks = tuple(range(len(self.sent), len(self.sent) + size))
        self.sent.update(tasks)
        number = self.outbox.next_number(tasks)
        bundle = Bundle(number, tasks)
        self.outbox.keep(number, tasks, bundle, self.now)
        self.to_worker.append(bundle)

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def resend(self, seconds: float) -> None:
        self.now += seconds
        self.to_worker += self.outbox.overdue(self.now, RESEND)

    def hear(self, report: Report) -> None:
        if report.is_beat:
            left = self.outbox.reconcile(report.received, report.held)
        else:
            self.outbox.confirm(report.received)
            left = self.outbox.remove(report.done)
        assert not left & self.working, "the dispatcher gives away what the worker has"
        self.gone |= left

    # --- the worker ----------------------------------------------------------------------------

    def take(self, bundle: Bundle) -> None:
        if self.inbox.accept(bundle.number):
            self.accepted += bundle.tasks
            self.working.update(bundle.tasks)

    @precondition(lambda self: self.working)
    @rule(number=pick)
    def finish(self, number: int) -> None:
        task = sorted(self.working)[number % len(self.working)]
        self.working.discard(task)
        self.to_dispatcher.append(
            Report(self.inbox.received, frozenset(), frozenset({task}), is_beat=False)
        )

    @rule()
    def beat(self) -> None:
        self.to_dispatcher.append(Report(self.inbox.received, frozenset(self.working)))

    # --- the network ---------------------------------------------------------------------------

    @precondition(lambda self: self.to_worker)
    @rule(number=pick)
    def deliver_bundle(self, number: int) -> None:
        self.take(self.to_worker.pop(number % len(self.to_worker)))

    @precondition(lambda self: self.to_dispatcher)
    @rule(number=pick)
    def deliver_report(self, number: int) -> None:
        self.hear(self.to_dispatcher.pop(number % len(self.to_dispatcher)))

    @precondition(lambda self: self.to_worker or self.to_dispatcher)
    @rule(number=pick, doubled=st.booleans())
    def lose_or_double(self, number: int, doubled: bool) -> None:
        line: list[Any] = self.to_worker or self.to_dispatcher
        message = line.pop(number % len(line))
        if doubled:
            line += [message, message]

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def nothing_is_accepted_twice(self) -> None:
        assert len(self.accepted) == len(set(self.accepted))

    @invariant()
    def what_the_worker_has_is_known_or_was_said_to_be_done(self) -> None:
        assert self.working <= self.outbox.held
        assert self.outbox.held <= self.sent

    def teardown(self) -> None:
        """A while of good weather: everything sent arrives, and nothing is believed held."""
        for _ in range(3):
            self.now += 10
            self.to_worker += self.outbox.overdue(self.now, RESEND)
            self.drain(self.to_worker, self.take)
            self.beat()
            self.drain(self.to_dispatcher, self.hear)
        assert set(self.accepted) == self.sent, "a bundle was lost"
        assert self.outbox.held == self.working
        self.working.clear()
        self.beat()
        self.drain(self.to_dispatcher, self.hear)
        assert self.outbox.held == set(), "credit has leaked"
        assert self.outbox.overdue(self.now + 100, RESEND) == []
        assert not self.inbox._ahead

    @staticmethod
    def drain(line: list[Any], take: Callable[[Any], None]) -> None:
        while line:
            take(line.pop(0))


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=150, stateful_step_count=40)


def outbox_with(*bundles: tuple[int, ...]) -> BundleSender[str]:
    outbox: BundleSender[str] = BundleSender()
    for tasks in bundles:
        number = outbox.next_number(tasks)
        outbox.keep(number, tasks, f"bundle {number}", 0.0)
    return outbox


def test_a_lost_bundle_is_sent_again_with_its_number_until_it_is_confirmed() -> None:
    outbox = outbox_with((1, 2), (3,))
    assert outbox.overdue(1.0, RESEND) == []
    assert outbox.overdue(2.5, RESEND) == ["bundle 1", "bundle 2"]
    assert outbox.overdue(3.0, RESEND) == [], "not again at once"
    outbox.confirm(1)
    assert outbox.overdue(9.0, RESEND) == ["bundle 2"]


def test_a_task_on_its_way_is_not_given_up_because_the_worker_does_not_have_it_yet() -> None:
    outbox = outbox_with((1, 2))
    assert outbox.reconcile(0, ()) == set()
    assert outbox.held == {1, 2}


def test_a_lost_done_is_made_good_by_the_next_beat() -> None:
    outbox = outbox_with((1, 2))
    assert outbox.reconcile(1, (2,)) == {1}
    assert outbox.held == {2}


def test_a_late_beat_from_before_a_bundle_does_not_take_it_away() -> None:
    outbox = outbox_with((1,), (2,))
    outbox.confirm(2)
    assert outbox.reconcile(1, (1,)) == set()
    assert outbox.held == {1, 2}


def test_what_a_worker_brings_along_counts_until_it_is_done() -> None:
    outbox: BundleSender[str] = BundleSender([7, 8])
    assert outbox.remove([7, 99]) == {7}
    assert outbox.reconcile(0, (8,)) == set()
    assert outbox.reconcile(0, ()) == {8}


def test_an_inbox_counts_up_to_the_first_gap() -> None:
    inbox = BundleReceiver()
    assert [inbox.accept(n) for n in (1, 3, 3, 4)] == [True, True, False, True]
    assert inbox.received == 1
    assert inbox.accept(2)
    assert inbox.received == 4
    assert not any(inbox.accept(n) for n in (1, 2, 3, 4))
