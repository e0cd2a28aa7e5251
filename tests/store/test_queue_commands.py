"""Pausing the queue, as a whole or for a type."""

import pytest

from drumline.errors import Conflict, UnknownHandler
from drumline.store.tables import pause
from tests.store.desk import Desk
from tests.store.world import SPEC, at_once


def test_a_pause_stays_until_it_is_undone(desk: Desk) -> None:
    assert desk("queue.pause", type=SPEC.type) == {"paused": [SPEC.type]}
    assert desk("queue.pause", type=SPEC.type) == {"paused": [SPEC.type]}
    assert desk("queue.pause") == {"paused": ["*", SPEC.type]}
    assert desk("queue.show")["paused"] == ["*", SPEC.type]
    assert desk("queue.resume") == {"paused": [SPEC.type]}
    with pytest.raises(Conflict, match="the whole queue is not paused; paused: type"):
        desk("queue.resume")
    assert desk("queue.resume", type=SPEC.type) == {"paused": []}
    assert desk.rings == 5


def test_a_type_that_nobody_has_cannot_be_paused(desk: Desk) -> None:
    with pytest.raises(UnknownHandler, match="typo"):
        desk("queue.pause", type="typo")


def test_two_who_pause_at_once_agree(desk: Desk) -> None:
    answers = at_once(*[lambda: desk("queue.pause", type=SPEC.type)] * 6)
    assert answers == [{"paused": [SPEC.type]}] * 6
    assert desk.count(pause) == 1
