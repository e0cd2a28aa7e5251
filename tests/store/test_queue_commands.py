"""Pausing a type or everything."""

import pytest

from drumline.errors import Conflict, UnknownHandler
from drumline.store.tables import pause
from tests.store.stub_gateway import StubGateway
from tests.store.world import SPEC, at_once


def test_a_pause_lasts_until_it_is_resumed(gateway: StubGateway) -> None:
    assert gateway("queue.pause", type=SPEC.type) == {"paused": [SPEC.type]}
    assert gateway("queue.pause", type=SPEC.type) == {"paused": [SPEC.type]}
    assert gateway("queue.pause") == {"paused": ["*", SPEC.type]}
    assert gateway("queue.show")["paused"] == ["*", SPEC.type]
    assert gateway("queue.resume") == {"paused": [SPEC.type]}
    with pytest.raises(Conflict, match="the whole queue is not paused; paused: type"):
        gateway("queue.resume")
    assert gateway("queue.resume", type=SPEC.type) == {"paused": []}
    assert gateway.notifications == 5


def test_a_type_without_a_handler_cannot_be_paused(gateway: StubGateway) -> None:
    with pytest.raises(UnknownHandler, match="typo"):
        gateway("queue.pause", type="typo")


def test_concurrent_pauses_give_the_same_answer(gateway: StubGateway) -> None:
    answers = at_once(*[lambda: gateway("queue.pause", type=SPEC.type)] * 6)
    assert answers == [{"paused": [SPEC.type]}] * 6
    assert gateway.count(pause) == 1
