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
    """A Heartbeat, or with `released` a TasksReleased."""

    received: int
    held: frozenset[int]
    released: frozenset[int] = frozenset()
    is_heartbeat: bool = True


pick = st.integers(0, 1_000)


class Network(RuleBasedStateMachine):
    """A dispatcher's BundleSender, a worker's BundleReceiver, and a network that loses messages."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.sender: BundleSender[Bundle] = BundleSender()
        self.receiver = BundleReceiver()
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
        number = self.sender.next_number(tasks)
        bundle = Bundle(number, tasks)
        self.sender.keep(number, tasks, bundle, self.now)
        self.to_worker.append(bundle)

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def resend(self, seconds: float) -> None:
        self.now += seconds
        self.to_worker += self.sender.overdue(self.now, RESEND)

    def receive_report(self, report: Report) -> None:
        if report.is_heartbeat:
            left = self.sender.reconcile(report.received, report.held)
        else:
            self.sender.confirm(report.received)
            left = self.sender.remove(report.released)
        assert not left & self.working, "the dispatcher removes a task that the worker holds"
        self.gone |= left

    # --- the worker ----------------------------------------------------------------------------

    def receive_bundle(self, bundle: Bundle) -> None:
        if self.receiver.accept(bundle.number):
            self.accepted += bundle.tasks
            self.working.update(bundle.tasks)

    @precondition(lambda self: self.working)
    @rule(number=pick)
    def finish(self, number: int) -> None:
        task = sorted(self.working)[number % len(self.working)]
        self.working.discard(task)
        self.to_dispatcher.append(
            Report(self.receiver.received, frozenset(), frozenset({task}), is_heartbeat=False)
        )

    @rule()
    def heartbeat(self) -> None:
        self.to_dispatcher.append(Report(self.receiver.received, frozenset(self.working)))

    # --- the network ---------------------------------------------------------------------------

    @precondition(lambda self: self.to_worker)
    @rule(number=pick)
    def deliver_bundle(self, number: int) -> None:
        self.receive_bundle(self.to_worker.pop(number % len(self.to_worker)))

    @precondition(lambda self: self.to_dispatcher)
    @rule(number=pick)
    def deliver_report(self, number: int) -> None:
        self.receive_report(self.to_dispatcher.pop(number % len(self.to_dispatcher)))

    @precondition(lambda self: self.to_worker or self.to_dispatcher)
    @rule(number=pick, doubled=st.booleans())
    def lose_or_double(self, number: int, doubled: bool) -> None:
        line: list[Any] = self.to_worker or self.to_dispatcher
        message = line.pop(number % len(line))
        if doubled:
            line += [message, message]

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def no_task_is_accepted_twice(self) -> None:
        assert len(self.accepted) == len(set(self.accepted))

    @invariant()
    def tasks_of_the_worker_are_held_in_the_dispatcher(self) -> None:
        assert self.working <= self.sender.held
        assert self.sender.held <= self.sent

    def teardown(self) -> None:
        """Deliver everything: every bundle arrives, and no task stays held in the dispatcher."""
        for _ in range(3):
            self.now += 10
            self.to_worker += self.sender.overdue(self.now, RESEND)
            self.drain(self.to_worker, self.receive_bundle)
            self.heartbeat()
            self.drain(self.to_dispatcher, self.receive_report)
        assert set(self.accepted) == self.sent, "a bundle was lost"
        assert self.sender.held == self.working
        self.working.clear()
        self.heartbeat()
        self.drain(self.to_dispatcher, self.receive_report)
        assert self.sender.held == set(), "credit has leaked"
        assert self.sender.overdue(self.now + 100, RESEND) == []
        assert not self.receiver._ahead

    @staticmethod
    def drain(line: list[Any], take: Callable[[Any], None]) -> None:
        while line:
            take(line.pop(0))


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=150, stateful_step_count=40)


def sender_with(*bundles: tuple[int, ...]) -> BundleSender[str]:
    sender: BundleSender[str] = BundleSender()
    for tasks in bundles:
        number = sender.next_number(tasks)
        sender.keep(number, tasks, f"bundle {number}", 0.0)
    return sender


def test_a_lost_bundle_is_sent_again_with_its_number_until_it_is_confirmed() -> None:
    sender = sender_with((1, 2), (3,))
    assert sender.overdue(1.0, RESEND) == []
    assert sender.overdue(2.5, RESEND) == ["bundle 1", "bundle 2"]
    assert sender.overdue(3.0, RESEND) == [], "not again at once"
    sender.confirm(1)
    assert sender.overdue(9.0, RESEND) == ["bundle 2"]


def test_a_task_in_an_unconfirmed_bundle_stays_held() -> None:
    sender = sender_with((1, 2))
    assert sender.reconcile(0, ()) == set()
    assert sender.held == {1, 2}


def test_the_next_heartbeat_makes_up_for_a_lost_release() -> None:
    sender = sender_with((1, 2))
    assert sender.reconcile(1, (2,)) == {1}
    assert sender.held == {2}


def test_an_outdated_heartbeat_does_not_remove_a_later_bundle() -> None:
    sender = sender_with((1,), (2,))
    sender.confirm(2)
    assert sender.reconcile(1, (1,)) == set()
    assert sender.held == {1, 2}


def test_tasks_held_at_registration_count_until_they_are_released() -> None:
    sender: BundleSender[str] = BundleSender([7, 8])
    assert sender.remove([7, 99]) == {7}
    assert sender.reconcile(0, (8,)) == set()
    assert sender.reconcile(0, ()) == {8}


def test_a_receiver_counts_up_to_the_first_gap() -> None:
    receiver = BundleReceiver()
    assert [receiver.accept(n) for n in (1, 3, 3, 4)] == [True, True, False, True]
    assert receiver.received == 1
    assert receiver.accept(2)
    assert receiver.received == 4
    assert not any(receiver.accept(n) for n in (1, 2, 3, 4))
