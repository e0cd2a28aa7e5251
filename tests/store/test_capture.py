"""Capture: what was there before a change is kept once, by whoever holds the task."""

import msgspec

from drumline.domain.release import RunEnd
from drumline.domain.task import DueTask
from drumline.store.task import runs
from tests.store.world import World, commit_of_unknown_fate, over


def test_the_first_capture_stays(world: World) -> None:
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    (due,) = world.acquire(keeper)
    assert capture(world, keeper, due, '"first"', '"a"')
    assert capture(world, keeper, due, '"second"', '"b"')
    world.release(keeper, [over(due, RunEnd.TIMEOUT)])
    (again,) = world.acquire(keeper)
    assert capture(world, keeper, again, '"third"', '"c"')
    row = world.task(member)
    assert (row.before_update, row.after_update) == ('"first"', '"a"')


def test_who_no_longer_holds_a_task_captures_nothing(world: World) -> None:
    sleepy, other = world.keeper("sleepy"), world.keeper("other")
    _, (member,) = world.batch(1)
    (due,) = world.acquire(sleepy)
    assert not capture(world, other, due, '"wrong"', '"owner"')
    assert not capture(world, sleepy, msgspec.structs.replace(due, version=77), '"wrong"', '"f"')
    world.die(sleepy)
    world.give_back(sleepy)
    assert not capture(world, sleepy, due, '"changed"', '"state"')
    (again,) = world.acquire(other)
    assert not capture(world, sleepy, due, '"changed"', '"state"')
    assert world.task(member).before_update is None
    assert capture(world, other, again, '"right"', '"one"')


def test_a_capture_whose_commit_was_lost_is_ours(world: World) -> None:
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    (due,) = world.acquire(keeper)
    with commit_of_unknown_fate(world.database):
        assert capture(world, keeper, due, '"old"', '"new"')
    assert world.task(member).before_update == '"old"'


def capture(world: World, keeper: int, due: DueTask, before: str, after: str) -> bool:
    return runs.capture(world.database, keeper, due.id, due.fence, before, after)
