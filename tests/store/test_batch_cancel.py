"""Cancelling a batch: waiting tasks at once, running tasks at their end or by force."""

import pytest

from drumline.errors import Conflict
from drumline.store.batch import operations
from drumline.store.rows import TaskRow
from tests.store.stub_gateway import StubGateway, loading, submitted
from tests.store.world import Crash, World, crash_after, over


def test_cancel_ends_waiting_tasks_at_once_and_running_ones_later(
    gateway: StubGateway, world: World
) -> None:
    batch_id = submitted(gateway)
    keeper = world.keeper()
    (due,) = world.acquire(keeper, world.members(batch_id)[:1])
    answer = gateway("batch.cancel", batch_id=batch_id)
    assert (answer["cancelled"], answer["running"]) == (2, 1)
    assert world.statuses(batch_id) == ["running", "cancel", "cancel"]
    assert not gateway("batch.show", batch_id=batch_id)["finished"]
    assert gateway.requests == []
    world.release(keeper, [over(due)])
    assert world.statuses(batch_id) == ["cancel"] * 3
    assert gateway("batch.show", batch_id=batch_id)["finished"]
    world.check_laws()


def test_a_forced_cancel_kills_running_tasks(gateway: StubGateway, world: World) -> None:
    batch_id = submitted(gateway)
    keeper = world.keeper()
    world.acquire(keeper, world.members(batch_id)[:2])
    assert gateway("batch.cancel", batch_id=batch_id, force=True)["killing"] == 2
    assert sorted(gateway.requests) == [("kill", "", i) for i in world.members(batch_id)[:2]]
    assert [row.stop for row in world.rows(TaskRow)] == [2, 2, 0]


def test_a_forced_cancel_may_follow_a_cancel(gateway: StubGateway, world: World) -> None:
    batch_id = submitted(gateway)
    world.acquire(world.keeper(), world.members(batch_id)[:1])
    gateway("batch.cancel", batch_id=batch_id)
    with pytest.raises(Conflict, match="1 of its tasks are running"):
        gateway("batch.cancel", batch_id=batch_id)
    gateway("batch.cancel", batch_id=batch_id, force=True)
    assert world.rows(TaskRow)[0].stop == 2


def test_without_a_dispatcher_the_kill_is_left_to_the_keepers(
    gateway: StubGateway, world: World
) -> None:
    batch_id = submitted(gateway)
    world.acquire(world.keeper(), world.members(batch_id)[:1])
    gateway.reachable = False
    gateway("batch.cancel", batch_id=batch_id, force=True)
    assert world.rows(TaskRow)[0].stop == 2


def test_a_finished_batch_cannot_be_cancelled(gateway: StubGateway, world: World) -> None:
    batch_id = submitted(gateway)
    world.run(world.keeper())
    with pytest.raises(Conflict, match="already finished: success"):
        gateway("batch.cancel", batch_id=batch_id)
    other = submitted(gateway)
    gateway("batch.cancel", batch_id=other)
    with pytest.raises(Conflict, match="already cancelled"):
        gateway("batch.cancel", batch_id=other, force=True)


def test_cancel_stops_a_load(gateway: StubGateway, world: World) -> None:
    batch_id = loading(gateway)
    gateway("batch.cancel", batch_id=batch_id)
    assert world.statuses(batch_id) == ["cancel"] * 3
    with pytest.raises(Conflict, match="no longer being loaded"):
        gateway("batch.load", batch_id=batch_id, count=1)
    assert gateway("batch.show", batch_id=batch_id)["finished"]
    world.check_laws()


def test_a_cancel_replaces_a_start_in_progress(
    gateway: StubGateway, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "CHUNK", 2)
    batch_id = loading(gateway, count=5)
    with crash_after(gateway.database, commits=2), pytest.raises(Crash):
        gateway("batch.start", batch_id=batch_id)
    assert len(world.dues()) == 2
    gateway("batch.cancel", batch_id=batch_id)
    assert world.statuses(batch_id) == ["cancel"] * 5
    assert world.dues() == []
    world.check_laws()
