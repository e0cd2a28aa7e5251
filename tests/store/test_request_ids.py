"""A request is executed once, however often it is sent."""

import pytest

from drumline import commands
from drumline.domain.release import RunEnd
from drumline.errors import Conflict, WrongUse
from drumline.store.tables import batch, task
from tests.store.stub_gateway import StubGateway, submitted
from tests.store.world import SPEC, World, at_once


def test_a_repeated_request_is_executed_once_and_answered_the_same(gateway: StubGateway) -> None:
    arguments = {"batch_name": "june", "type": SPEC.type, "count": 3}
    first = gateway("batch.submit", "r1", **arguments)
    assert gateway("batch.submit", "r1", **arguments) == first
    assert gateway.count(task) == 3
    assert gateway.notifications == 2  # the first notification may have been lost


def test_concurrent_copies_of_a_request_are_executed_once(gateway: StubGateway) -> None:
    arguments = {"batch_name": "june", "type": SPEC.type, "count": 3}
    answers = at_once(*[lambda: gateway("batch.submit", "r1", **arguments)] * 6)
    assert answers == [answers[0]] * 6
    assert (gateway.count(batch), gateway.count(task)) == (1, 3)


def test_a_request_id_belongs_to_one_command_and_its_arguments(gateway: StubGateway) -> None:
    gateway("task.schedule", "r1", type=SPEC.type)
    with pytest.raises(Conflict, match="with other arguments"):
        gateway("task.schedule", "r1", type=SPEC.type, priority=9)
    assert gateway.count(task) == 1
    with pytest.raises(Conflict, match=r"task\.schedule"):
        gateway("queue.pause", "r1")


def test_a_refused_request_can_be_repeated(gateway: StubGateway, world: World) -> None:
    batch_id = submitted(gateway)
    with pytest.raises(Conflict):
        gateway("batch.retry", "r1", batch_id=batch_id)
    world.run(world.keeper(), end=RunEnd.ERROR)
    assert gateway("batch.retry", "r1", batch_id=batch_id)["retried"] == 3


@pytest.mark.parametrize("request_id", ["", "x" * 65])
def test_a_request_id_of_the_wrong_length_is_refused(gateway: StubGateway, request_id: str) -> None:
    command = commands.read(commands.by_name("queue.pause"), {})
    with pytest.raises(WrongUse, match="request id"):
        commands.run_command(command, request_id, gateway.context)
