"""A request is done once, however often it is sent."""

import pytest

from drumline import commands
from drumline.domain.release import RunEnd
from drumline.errors import Conflict, WrongUse
from drumline.store.tables import batch, task
from tests.store.desk import Desk, submitted
from tests.store.world import SPEC, World, at_once


def test_a_request_sent_twice_is_done_once_and_answered_the_same(desk: Desk) -> None:
    arguments = {"batch_name": "june", "type": SPEC.type, "count": 3}
    first = desk("batch.submit", "r1", **arguments)
    assert desk("batch.submit", "r1", **arguments) == first
    assert desk.count(task) == 3
    assert desk.rings == 2  # the first ring may be what got lost


def test_a_request_sent_many_times_at_once_is_done_once(desk: Desk) -> None:
    arguments = {"batch_name": "june", "type": SPEC.type, "count": 3}
    answers = at_once(*[lambda: desk("batch.submit", "r1", **arguments)] * 6)
    assert answers == [answers[0]] * 6
    assert (desk.count(batch), desk.count(task)) == (1, 3)


def test_a_request_id_is_for_one_command(desk: Desk) -> None:
    desk("task.schedule", "r1", type=SPEC.type)
    with pytest.raises(Conflict, match="with other arguments"):
        desk("task.schedule", "r1", type=SPEC.type, priority=9)
    assert desk.count(task) == 1
    with pytest.raises(Conflict, match=r"task\.schedule"):
        desk("queue.pause", "r1")


def test_a_refused_request_may_be_repeated_and_then_be_done(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    with pytest.raises(Conflict):
        desk("batch.retry", "r1", batch_id=batch_id)
    world.run(world.keeper(), end=RunEnd.ERROR)
    assert desk("batch.retry", "r1", batch_id=batch_id)["retried"] == 3


@pytest.mark.parametrize("request_id", ["", "x" * 65])
def test_a_request_id_that_cannot_be_kept_is_refused(desk: Desk, request_id: str) -> None:
    command = commands.read(commands.by_name("queue.pause"), {})
    with pytest.raises(WrongUse, match="request id"):
        commands.run_command(command, request_id, desk.context)
