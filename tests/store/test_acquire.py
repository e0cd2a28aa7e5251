"""Acquire: every task is won by exactly one keeper, and only while it may start."""

import random
from collections import Counter
from unittest import mock

import msgspec
import pytest

from drumline.domain.release import RunEnd
from drumline.domain.states import BatchOperation, Phase, TaskState
from drumline.domain.task import DueTask
from drumline.store.batch import batches
from drumline.store.node import keepers
from drumline.store.node.keepers import KeeperDead
from drumline.store.tables import NOBODY, STOP_CANCEL
from drumline.store.task import runs
from tests.store.world import Crash, World, at_once, commit_of_unknown_fate, over


def ids(dues: list[DueTask]) -> list[int]:
    return [due.id for due in dues]


def test_acquire_takes_tasks_and_writes_owner_fence_and_counters(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(3)
    before = world.task(members[0])
    won = world.acquire(keeper)
    assert ids(won) == members
    row = world.task(members[0])
    assert (row.status, row.owner, row.attempt) == ("running", keeper, 1)
    assert row.version == before.version + 1
    assert row.fence == won[0].fence == row.version
    assert row.started_at > 0
    assert world.batch_row(batch_id).n_running == 3
    world.check_laws()


@pytest.mark.parametrize(
    ("waiting", "running", "phase"),
    [
        ("pending", "running", Phase.FORWARD),
        ("retry_pending", "running", Phase.FORWARD),
        ("rollback_pending", "rollback_running", Phase.ROLLBACK),
    ],
)
def test_each_waiting_state_becomes_its_running_state(
    world: World, waiting: str, running: str, phase: Phase
) -> None:
    _, (member,) = world.scene([waiting], phase)
    assert world.acquire(world.keeper())
    assert world.task(member).status == running
    world.check_laws()


def test_two_keepers_over_the_same_tasks_win_each_task_once(world: World) -> None:
    two = [world.batch(60)[0], world.batch(60)[0]]
    singles = [world.one_shot(priority=n % 10) for n in range(30)]
    everything = world.dues()
    assert len(everything) == 150
    keeper_ids = [world.keeper(f"worker {n}") for n in range(4)]

    def greedy(keeper_id: int) -> list[int]:
        """All of it, in bundles cut anew, as from a scan that is no longer true."""
        chance = random.Random(keeper_id)
        shuffled = chance.sample(everything, len(everything))
        won: list[int] = []
        while shuffled:
            size = chance.randint(1, 12)
            won += ids(runs.acquire(world.database, keeper_id, shuffled[:size]))
            del shuffled[:size]
        return won

    won = at_once(*[lambda k=k: greedy(k) for k in keeper_ids])
    counts = Counter(task_id for mine in won for task_id in mine)
    assert counts == Counter(due.id for due in everything)
    for keeper_id, mine in zip(keeper_ids, won, strict=True):
        assert {world.task(task_id).owner for task_id in mine} <= {keeper_id}
    assert [world.batch_row(b).n_running for b in two] == [60, 60]
    assert {world.task(single).status for single in singles} == {"running"}
    world.check_laws()


def test_a_task_that_changed_since_it_was_read_is_not_taken(world: World) -> None:
    keeper = world.keeper()
    first, second = world.one_shot(), world.one_shot()
    stale = world.dues()
    world.set_task(first, version=1, priority=9)
    assert ids(runs.acquire(world.database, keeper, stale)) == [second]
    assert world.task(first).status == "pending"
    assert ids(world.acquire(keeper)) == [first]


def test_the_same_task_twice_in_a_bundle_is_taken_once(world: World) -> None:
    single = world.one_shot()
    dues = world.dues()
    assert ids(runs.acquire(world.database, world.keeper(), dues * 2)) == [single]
    world.check_laws()


def test_a_task_that_is_not_in_the_state_it_is_said_to_be_in_is_not_taken(world: World) -> None:
    single = world.one_shot()
    lies = [msgspec.structs.replace(d, status=TaskState.ROLLBACK_PENDING) for d in world.dues()]
    assert runs.acquire(world.database, world.keeper(), lies) == []
    assert world.task(single).status == "pending"


def test_a_task_that_nobody_may_take_yet_is_not_taken(world: World) -> None:
    """It waits to be opened with the rest of its batch."""
    single = world.one_shot()
    dues = world.dues()
    world.set_task(single, owner=NOBODY)
    assert runs.acquire(world.database, world.keeper(), dues) == []
    assert world.task(single).status == "pending"


def test_a_task_that_is_gone_is_not_taken(world: World) -> None:
    world.one_shot()
    gone = [msgspec.structs.replace(due, id=due.id + 1000) for due in world.dues()]
    assert runs.acquire(world.database, world.keeper(), gone) == []


@pytest.mark.parametrize("phase", [Phase.CANCEL, Phase.ROLLBACK, Phase.LOADING])
def test_nothing_of_a_batch_that_is_not_to_run_is_taken(world: World, phase: Phase) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(2)
    other = world.one_shot()
    world.set_batch(batch_id, phase=phase)
    assert ids(world.acquire(keeper)) == [other]
    assert [world.task(member).owner for member in members] == [0, 0]
    assert [world.task(member).status for member in members] == ["pending", "pending"]
    world.check_laws()


def test_a_change_does_not_start_in_a_batch_that_is_being_rolled_back(world: World) -> None:
    """A batch operation runs in chunks: for a while both kinds of task wait."""
    keeper = world.keeper()
    _, (undone, still) = world.scene(["rollback_pending", "pending"], "rollback", captured=[0, 1])
    assert ids(world.acquire(keeper)) == [undone]
    assert world.task(still).status == "pending"
    world.check_laws()


def test_a_dead_keeper_takes_nothing(world: World) -> None:
    keeper = world.keeper()
    single = world.one_shot()
    world.die(keeper)
    with pytest.raises(KeeperDead):
        world.acquire(keeper)
    assert world.task(single).owner == 0


def test_acquiring_is_a_sign_of_life(world: World) -> None:
    keeper = world.keeper()
    world.one_shot()
    (before,) = world.database.read(lambda tx: keepers.read_alive(tx, "here"))
    world.acquire(keeper)
    (after,) = world.database.read(lambda tx: keepers.read_alive(tx, "here"))
    assert after.beat > before.beat


def test_a_commit_of_unknown_fate_is_found_won(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(4)
    with commit_of_unknown_fate(world.database):
        won = world.acquire(keeper)
    assert sorted(ids(won)) == members
    assert [world.task(member).attempt for member in members] == [1] * 4
    assert world.batch_row(batch_id).n_running == 4
    assert world.release(keeper, [over(due) for due in won]) == []
    world.check_laws()


def test_after_a_lost_commit_only_what_is_really_ours_counts_as_won(world: World) -> None:
    mine, other = world.keeper("mine"), world.keeper("other")
    _, members = world.batch(4)
    dues = world.dues()
    runs.acquire(world.database, other, dues[:2])
    with commit_of_unknown_fate(world.database):
        won = runs.acquire(world.database, mine, dues)
    assert ids(won) == members[2:]
    world.check_laws()


def test_an_earlier_run_of_the_same_keeper_is_not_taken_for_this_one(world: World) -> None:
    keeper = world.keeper()
    single = world.one_shot()
    stale = world.dues()
    world.run(keeper, end=RunEnd.GIVEN_BACK)
    assert ids(world.acquire(keeper)) == [single]
    # Ours, but under another fence: a bundle that came a second time must not start it again.
    assert runs.acquire(world.database, keeper, stale) == []


def test_a_fence_grows_with_every_run(world: World) -> None:
    keeper = world.keeper()
    world.one_shot()
    fences = []
    for _ in range(3):
        (due,) = world.acquire(keeper)
        fences.append(due.fence)
        world.release(keeper, [over(due, RunEnd.GIVEN_BACK)])
    assert fences == sorted(set(fences))


def test_a_keeper_that_dies_before_its_commit_has_taken_nothing(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(2)
    dues = world.dues()
    crash = mock.patch.object(batches, "apply_counter_changes", side_effect=Crash)
    with crash, pytest.raises(Crash):
        runs.acquire(world.database, keeper, dues)
    assert [world.task(member).owner for member in members] == [0, 0]
    assert world.batch_row(batch_id).n_pending == 2


def test_only_its_own_batchs_counters_move(world: World) -> None:
    first, _ = world.batch(2)
    second, members = world.batch(2)
    world.acquire(world.keeper(), members)
    assert world.batch_row(first).n_pending == 2
    assert world.batch_row(second).n_running == 2
    world.check_laws()


def test_cancel_and_acquire_at_once_leave_nothing_running_in_a_cancelled_batch(
    world: World,
) -> None:
    for _ in range(5):
        batch_id, members = world.batch(20)
        keeper = world.keeper()
        dues = world.dues(members)

        def take(keeper: int = keeper, dues: list[DueTask] = dues) -> list[int]:
            return [
                d.id
                for n in range(0, 20, 2)
                for d in runs.acquire(world.database, keeper, dues[n : n + 2])
            ]

        def stop(batch_id: int = batch_id) -> list[int]:
            world.run_operation(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
            return []

        won, _ = at_once(take, stop)
        for member in members:
            row = world.task(member)
            if member in won:
                assert (row.status, row.stop) == ("running", STOP_CANCEL)
            else:
                assert row.status == "cancel"
        world.check_laws()
