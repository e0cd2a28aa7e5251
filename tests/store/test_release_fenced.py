"""Release by who no longer holds a run, or may not know it: never over another's change."""

from functools import partial
from unittest import mock

import pytest

from drumline.domain.release import RunEnd
from drumline.store.batch import batches
from drumline.store.task import held_tasks
from tests.store.world import LIMITS, REGION, Crash, World, at_once, commit_of_unknown_fate, over


def test_another_keepers_run_cannot_be_released(world: World) -> None:
    mine, other = world.keeper("mine"), world.keeper("other")
    _, (member,) = world.batch(1)
    (due,) = world.acquire(mine)
    world.release(other, [over(due)])
    assert (world.task(member).status, world.task(member).owner) == ("running", mine)
    world.check_laws()


def test_an_earlier_run_of_the_same_keeper_cannot_be_released(world: World) -> None:
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    (old,) = world.acquire(keeper)
    world.release(keeper, [over(old, RunEnd.GIVEN_BACK)])
    (new,) = world.acquire(keeper)
    world.release(keeper, [over(old, RunEnd.ERROR)])
    row = world.task(member)
    assert (row.status, row.fence, row.info) == ("running", new.fence, None)
    assert world.attempts(member) == []
    world.check_laws()


def test_after_the_reaper_took_it_back_a_release_is_refused_and_said_to_be_lost(
    world: World,
) -> None:
    sleepy, other = world.keeper("sleepy"), world.keeper("other")
    batch_id, members = world.batch(3)
    dues = world.acquire(sleepy)
    world.die(sleepy)
    world.give_back(sleepy)
    (again, *_) = world.acquire(other, members[:1])
    world.release(other, [over(again, result='"theirs"')])
    lost = world.release(sleepy, [over(due, result='"late"') for due in dues])
    assert sorted(lost) == members
    assert world.statuses(batch_id) == ["success", "pending", "pending"]
    assert world.result(members[0]) == '"theirs"'
    assert world.result(members[1]) is None
    world.check_laws()


def test_what_a_dead_keeper_still_owns_it_may_still_end(world: World) -> None:
    """Declared dead, not yet given back: nobody else has it, and its outcome is true."""
    keeper = world.keeper()
    _, members = world.batch(2)
    dues = world.acquire(keeper)
    world.die(keeper)
    assert world.release(keeper, [over(due) for due in dues]) == []
    assert {world.task(member).status for member in members} == {"success"}
    world.check_laws()


def test_the_rest_of_a_group_is_released_when_some_of_it_is_lost(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(4)
    dues = world.acquire(keeper)
    world.die(keeper)
    held_tasks.give_back(world.database, REGION, keeper, LIMITS, only=members[:2])
    lost = world.release(keeper, [over(due) for due in dues])
    assert sorted(lost) == members[:2]
    assert world.statuses(batch_id) == ["pending", "pending", "success", "success"]
    world.check_laws()


def test_our_own_commit_of_unknown_fate_is_not_said_to_be_lost(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(3)
    dues = world.acquire(keeper)
    ends = [over(dues[0]), over(dues[1], RunEnd.ERROR), over(dues[2], RunEnd.GIVEN_BACK)]
    with commit_of_unknown_fate(world.database):
        assert world.release(keeper, ends) == []
    assert world.statuses(batch_id) == ["success", "fail", "pending"]
    assert len(world.attempts(members[1])) == 1
    assert world.task(members[1]).failures == 1
    world.check_laws()


def test_an_unknown_commit_is_not_lost_even_if_another_has_the_task_by_now(world: World) -> None:
    keeper, other = world.keeper(), world.keeper("other")
    _, (member,) = world.batch(1)
    (due,) = world.acquire(keeper)
    really = world.database.read

    def read_late(*arguments: object) -> object:
        """Between the lost commit and the look at what became of it, the task goes on."""
        if world.task_status(member) == "pending":
            with mock.patch.object(world.database, "read", really):
                world.acquire(other)
        return really(*arguments)  # type: ignore[arg-type]

    with (
        commit_of_unknown_fate(world.database),
        mock.patch.object(world.database, "read", read_late),
    ):
        assert world.release(keeper, [over(due, RunEnd.GIVEN_BACK)]) == []
    assert (world.task(member).owner, world.task(member).status) == (other, "running")
    world.check_laws()


def test_a_keeper_that_dies_before_its_commit_has_released_nothing(world: World) -> None:
    keeper = world.keeper()
    batch_id, (member,) = world.batch(1)
    (due,) = world.acquire(keeper)
    crash = mock.patch.object(batches, "apply_counter_changes", side_effect=Crash)
    with crash, pytest.raises(Crash):
        world.release(keeper, [over(due, result="1")])
    assert world.task(member).status == "running"
    assert world.result(member) is None
    assert world.batch_row(batch_id).n_running == 1


def test_two_who_release_the_same_run_change_it_once(world: World) -> None:
    """The keeper that was declared dead and woke up, and the reaper that gives back."""
    for _ in range(5):
        keeper = world.keeper()
        batch_id, members = world.batch(20)
        dues = world.acquire(keeper, members)
        world.die(keeper)
        lost, _ = at_once(
            partial(world.release, keeper, [over(due) for due in dues]),
            partial(taken_back, world, keeper),
        )
        for member, status in zip(members, world.statuses(batch_id), strict=True):
            assert status == ("pending" if member in lost else "success")
        world.check_laws()


def taken_back(world: World, keeper: int) -> list[int]:
    return [run.id for run in world.give_back(keeper)]
