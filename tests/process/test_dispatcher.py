"""The dispatcher alone, with peers played by the test: which tasks it queues, and what it sends."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import TypeVar

import pytest
import zmq

from actors.dispatcher.dispatcher import Dispatcher
from actors.event_loop import EventLoop
from drumline.config import Settings
from drumline.domain.dispatch.status import QueueStatus
from protocol import codec, sockets
from protocol.messages import (
    Bundle,
    DispatcherReply,
    DispatcherRequest,
    Feed,
    FeedRequest,
    HandlerSummary,
    Message,
    Register,
    Registered,
    RequestKind,
    Trigger,
)
from tests.process.runner_harness import due_task

M = TypeVar("M", bound=Message)

MILLISECONDS = 20_000
DUE, OTHER = due_task(1, "work"), due_task(2, "other")


class PlayedPeer:
    """A peer of the dispatcher."""

    def __init__(self, endpoint: str, kind: str, *types: str) -> None:
        self._context = sockets.context()
        self._socket = sockets.connected_dealer(self._context, endpoint)
        assert self._socket.poll(MILLISECONDS, zmq.POLLOUT), "no connection"
        facts = tuple(HandlerSummary(f"{name}/{name}", is_async=False) for name in types)
        self.send(Register(kind, kind, os.getpid(), handlers=facts))
        self.next(Registered)

    def send(self, message: Message) -> None:
        self._socket.send(codec.encode(message))

    def next(self, *kinds: type[M]) -> M:
        """The next message of one of these kinds; others are passed over."""
        while self._socket.poll(MILLISECONDS):
            message = codec.decode(self._socket.recv())
            if isinstance(message, kinds):
                return message
        raise AssertionError(f"none came of {kinds}")

    def queue_status(self) -> QueueStatus:
        """The dispatcher's status once it has handled all that this peer has sent before."""
        self.send(DispatcherRequest(0, RequestKind.QUEUE))
        queue = self.next(DispatcherReply).queue
        assert queue is not None
        return queue

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()


class Stage:
    """A dispatcher and its peers."""

    def __init__(self, folder: str) -> None:
        settings = Settings(run_dir=folder)
        self._loop = EventLoop()
        self._dispatcher = Dispatcher(settings, self._loop)
        self._thread = threading.Thread(target=self._loop.run)
        self._thread.start()
        self._players: list[PlayedPeer] = []
        self._endpoint = settings.endpoint("dispatcher")

    def player(self, kind: str, *types: str) -> PlayedPeer:
        self._players.append(PlayedPeer(self._endpoint, kind, *types))
        return self._players[-1]

    def close(self) -> None:
        for player in self._players:
            player.close()
        self._loop.stop()
        self._thread.join()
        self._loop.close()
        self._dispatcher.socket.close(linger=0)
        self._dispatcher.context.term()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="dl-") as folder, closing(Stage(folder)) as stage:
        yield stage


def test_a_lone_task_starts_without_a_scan(stage: Stage) -> None:
    scanner, gateway = stage.player("scanner"), stage.player("gateway")
    worker = stage.player("worker", DUE.type)
    gateway.send(Trigger((DUE,)))
    assert worker.next(Bundle).tasks == (DUE,)
    gateway.send(Trigger())
    gateway.queue_status()
    scanner.send(DispatcherRequest(1, RequestKind.QUEUE))
    # One trigger was forwarded, the second: the first needed no scan.
    assert isinstance(scanner.next(Trigger, DispatcherReply), Trigger)
    assert isinstance(scanner.next(Trigger, DispatcherReply), DispatcherReply)


def test_behind_queued_tasks_a_trigger_starts_a_scan(stage: Stage) -> None:
    scanner, gateway = stage.player("scanner"), stage.player("gateway")
    scanner.send(Feed((OTHER,)))
    assert scanner.queue_status().length == 1
    gateway.send(Trigger((DUE,)))
    scanner.next(Trigger)
    assert gateway.queue_status().by_type == {OTHER.key: 1}


def test_tasks_for_a_worker_that_is_gone_are_reported_to_the_scanner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker gets its async and its sync tasks in two bundles: sending the first one already
    shows that it is gone."""
    feed_requests: list[FeedRequest] = []

    def send(identity: bytes, message: Message) -> bool:
        if isinstance(message, FeedRequest):
            feed_requests.append(message)
        return not isinstance(message, Bundle)

    with tempfile.TemporaryDirectory(prefix="dl-") as folder:
        loop = EventLoop()
        dispatcher = Dispatcher(Settings(run_dir=folder), loop)
        try:
            monkeypatch.setattr(dispatcher, "send", send)
            handlers = (HandlerSummary(DUE.key, is_async=True), HandlerSummary(OTHER.key, False))
            worker = Register("worker", "worker-1", 1, handlers=handlers, async_slots=10)
            dispatcher.handle_message(b"scanner", Register("scanner", "scanner", 2))
            dispatcher.handle_message(b"worker", worker)
            dispatcher.handle_message(b"scanner", Feed((DUE, OTHER)))
            dispatcher.dispatch()
            assert dispatcher.queue_status().assigned == 0
            not_sent = {DUE.id, OTHER.id} - {
                task_id for r in feed_requests for task_id in r.removed
            }
            assert dispatcher.queue_status().length == len(not_sent)
        finally:
            dispatcher.socket.close(linger=0)
            dispatcher.context.term()
            loop.close()


def test_a_paused_type_is_not_queued(stage: Stage) -> None:
    scanner, gateway = stage.player("scanner"), stage.player("gateway")
    scanner.send(Feed((), paused=(DUE.type,)))
    assert scanner.queue_status().paused == (DUE.type,)
    gateway.send(Trigger((DUE,)))
    scanner.next(Trigger)
    assert gateway.queue_status().length == 0


def test_a_task_that_the_scan_finds_too_is_queued_once(stage: Stage) -> None:
    scanner, gateway = stage.player("scanner"), stage.player("gateway")
    gateway.send(Trigger((DUE,)))
    assert gateway.queue_status().length == 1
    scanner.send(Feed((DUE,)))
    worker = stage.player("worker", DUE.type)
    assert worker.next(Bundle).tasks == (DUE,)
    scanner.send(Feed((DUE,)))
    answer = scanner.queue_status()
    assert (answer.length, answer.assigned) == (0, 1)
