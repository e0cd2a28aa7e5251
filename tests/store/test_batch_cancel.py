"""Cancelling a batch: what waits at once, what runs at its end or by force."""

import pytest

from drumline.errors import Conflict
from drumline.store.batch import operations
from drumline.store.rows import TaskRow
from tests.store.desk import Desk, loading, submitted
from tests.store.world import Crash, World, crash_after, over


def test_cancel_takes_what_waits_at_once_and_what_runs_at_its_end(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    keeper = world.keeper()
    (due,) = world.acquire(keeper, world.members(batch_id)[:1])
    answer = desk("batch.cancel", batch_id=batch_id)
    assert (answer["cancelled"], answer["running"]) == (2, 1)
    assert world.statuses(batch_id) == ["running", "cancel", "cancel"]
    assert not desk("batch.show", batch_id=batch_id)["finished"]
    assert desk.asked == []
    world.release(keeper, [over(due)])
    assert world.statuses(batch_id) == ["cancel"] * 3
    assert desk("batch.show", batch_id=batch_id)["finished"]
    world.check_laws()


def test_cancel_by_force_has_what_runs_killed(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    keeper = world.keeper()
    world.acquire(keeper, world.members(batch_id)[:2])
    assert desk("batch.cancel", batch_id=batch_id, force=True)["killing"] == 2
    assert sorted(desk.asked) == [("kill", "", i) for i in world.members(batch_id)[:2]]
    assert [row.stop for row in world.rows(TaskRow)] == [2, 2, 0]


def test_force_may_follow_a_cancel_that_was_too_polite(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    world.acquire(world.keeper(), world.members(batch_id)[:1])
    desk("batch.cancel", batch_id=batch_id)
    with pytest.raises(Conflict, match="1 of its tasks are running"):
        desk("batch.cancel", batch_id=batch_id)
    desk("batch.cancel", batch_id=batch_id, force=True)
    assert world.rows(TaskRow)[0].stop == 2


def test_a_kill_without_a_dispatcher_is_left_to_the_keepers(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    world.acquire(world.keeper(), world.members(batch_id)[:1])
    desk.reachable = False
    desk("batch.cancel", batch_id=batch_id, force=True)
    assert world.rows(TaskRow)[0].stop == 2


def test_what_is_over_cannot_be_cancelled(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    world.run(world.keeper())
    with pytest.raises(Conflict, match="already finished: success"):
        desk("batch.cancel", batch_id=batch_id)
    other = submitted(desk)
    desk("batch.cancel", batch_id=other)
    with pytest.raises(Conflict, match="already cancelled"):
        desk("batch.cancel", batch_id=other, force=True)


def test_cancel_stops_a_load(desk: Desk, world: World) -> None:
    batch_id = loading(desk)
    desk("batch.cancel", batch_id=batch_id)
    assert world.statuses(batch_id) == ["cancel"] * 3
    with pytest.raises(Conflict, match="no longer being loaded"):
        desk("batch.load", batch_id=batch_id, count=1)
    assert desk("batch.show", batch_id=batch_id)["finished"]
    world.check_laws()


def test_cancel_wins_over_a_start_that_is_under_way(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "CHUNK", 2)
    batch_id = loading(desk, count=5)
    with crash_after(desk.database, commits=2), pytest.raises(Crash):
        desk("batch.start", batch_id=batch_id)
    assert len(world.dues()) == 2
    desk("batch.cancel", batch_id=batch_id)
    assert world.statuses(batch_id) == ["cancel"] * 5
    assert world.dues() == []
    world.check_laws()
