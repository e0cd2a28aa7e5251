"""Retention: what is finished and old leaves, whole and in chunks; nothing else ever does."""

from collections.abc import Callable

import pytest

from drumline.domain.release import RunEnd
from drumline.domain.states import FINISHED, BatchOperation, KeeperState, Phase, TaskState
from drumline.errors import NotFound
from drumline.store.admin.requests import once
from drumline.store.batch import operations
from drumline.store.node import keepers
from drumline.store.rows import AttemptRow, BatchRow, KeeperRow, RequestRow, TaskRow
from drumline.store.tables import keeper as keeper_table
from drumline.store.tables import request, task
from drumline.store.task import retention, tasks
from drumline.store.tx import Tx
from tests.store.world import REGION, ResultRow, World, over, while_open

OLD = 1_000
LIMIT = 2_000
CHUNK = 3


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNK", CHUNK)


def old_batch(world: World, size: int = 2) -> int:
    """A batch that finished long ago."""
    keeper = world.keeper()
    batch_id, members = world.batch(size)
    dues = world.acquire(keeper, members)
    world.release(
        keeper, [over(due, result="1") for due in dues[1:]] + [over(dues[0], RunEnd.ERROR)]
    )
    world.upkeep(batch_id)
    world.set_batch(batch_id, updated_at=OLD)
    for member in members:
        world.set_task(member, finished_at=OLD)
    return batch_id


def prune(world: World, what: Callable[[Tx, str, int], int]) -> list[int]:
    """Until nothing is left: how much each round took."""
    taken: list[int] = []
    while gone := world.database.write(lambda tx: what(tx, REGION, LIMIT)):
        taken.append(gone)
        assert len(taken) < 100
    return taken


def test_an_old_finished_batch_leaves_whole_and_in_chunks(world: World) -> None:
    gone = old_batch(world, 7)
    kept, _ = world.batch(1)
    taken = prune(world, retention.prune_batches)
    assert taken == [3, 3, 1, 1]
    assert [row.id for row in world.rows(BatchRow)] == [kept]
    assert world.rows(TaskRow, task.c.batch_id == gone) == []
    assert world.rows(ResultRow) == []
    assert world.rows(AttemptRow) == []
    world.check_laws()


@pytest.mark.parametrize("state", [s for s in TaskState if s not in FINISHED])
def test_a_batch_with_anything_unfinished_stays_whole(world: World, state: TaskState) -> None:
    batch_id, _ = world.scene(["success", state.value], "forward")
    world.upkeep(batch_id)
    world.set_batch(batch_id, updated_at=OLD)
    for member in world.members(batch_id):
        world.set_task(member, finished_at=OLD)
    assert prune(world, retention.prune_batches) == []
    assert prune(world, retention.prune_tasks) == []
    assert len(world.members(batch_id)) == 2


def test_a_batch_that_is_not_old_stays(world: World) -> None:
    batch_id = old_batch(world)
    world.set_batch(batch_id, updated_at=LIMIT)
    assert prune(world, retention.prune_batches) == []


def test_another_regions_batch_stays(world: World) -> None:
    batch_id = old_batch(world)
    world.set_batch(batch_id, region="elsewhere")
    assert prune(world, retention.prune_batches) == []


def test_a_load_that_was_given_up_leaves(world: World) -> None:
    batch_id, _ = world.batch(4, opened=False)
    assert prune(world, retention.prune_batches) == []
    world.set_batch(batch_id, updated_at=OLD)
    assert sum(prune(world, retention.prune_batches)) == 5
    assert world.rows(BatchRow) == []


def test_old_finished_tasks_without_a_batch_leave_and_others_stay(world: World) -> None:
    keeper = world.keeper()
    old = [world.one_shot() for _ in range(4)]
    world.run(keeper, end=RunEnd.ERROR)
    for task_id in old:
        world.set_task(task_id, finished_at=OLD)
    young = world.one_shot()
    world.run(keeper)
    waiting = world.one_shot(due_at=OLD)
    member = world.members(old_batch(world))
    assert prune(world, retention.prune_tasks) == [3, 1]
    assert [row.id for row in world.rows(TaskRow)] == [young, waiting, *member]
    assert {row.task_id for row in world.rows(AttemptRow)} == {member[0]}


def test_a_task_that_is_retried_just_then_is_not_deleted(world: World) -> None:
    """The retry is done and not committed when retention looks for what is old."""
    keeper = world.keeper()
    single, other = world.one_shot(), world.one_shot()
    world.run(keeper, end=RunEnd.ERROR)
    for task_id in (single, other):
        world.set_task(task_id, finished_at=OLD)
    while_open(
        world.database,
        lambda tx: tasks.retry(tx, single, REGION),
        lambda: prune(world, retention.prune_tasks),
    )
    assert [(row.id, row.status) for row in world.rows(TaskRow)] == [(single, "retry_pending")]
    assert {row.task_id for row in world.rows(AttemptRow)} == {single}
    world.check_laws()


def test_a_batch_whose_task_is_retried_just_then_stays_whole_or_leaves_whole(world: World) -> None:
    """One of the two is first; the other finds it so."""
    batch_id = old_batch(world, 3)
    failed = world.members(batch_id)[0]
    try:
        while_open(
            world.database,
            lambda tx: tasks.retry(tx, failed, REGION),
            lambda: prune(world, retention.prune_batches),
        )
        assert world.statuses(batch_id) == ["retry_pending", "success", "success"]
    except NotFound:
        assert world.members(batch_id) == []
        assert world.rows(BatchRow) == []
    world.check_laws()


def test_a_batch_that_is_rolled_back_just_then_stays_whole(world: World) -> None:
    batch_id = old_batch(world, 3)
    row = world.batch_row(batch_id)

    def roll_back(tx: Tx) -> None:
        assert operations.begin_operation(tx, row, BatchOperation.ROLLBACK, Phase.ROLLBACK)

    while_open(world.database, roll_back, lambda: prune(world, retention.prune_batches))
    assert len(world.members(batch_id)) == 3
    world.check_laws()


def test_old_requests_leave(world: World) -> None:
    for number in range(5):
        once(world.database, f"r{number}", "a.command", lambda tx: {})
    rows = request.update().where(request.c.id != "r4").values(created_at=OLD)
    world.database.write(lambda tx: tx.execute(rows))
    assert prune(world, lambda tx, _, before: retention.prune_requests(tx, before)) == [3, 1]
    assert [row.id for row in world.rows(RequestRow)] == ["r4"]


def test_a_keeper_is_forgotten_when_it_ended_long_ago_and_owns_nothing(world: World) -> None:
    alive, gone, dead, owner = (world.keeper(name) for name in ("alive", "gone", "dead", "owner"))
    world.one_shot()
    world.acquire(owner)
    world.database.write(lambda tx: keepers.close(tx, gone, KeeperState.GONE))
    world.die(dead)
    world.die(owner)
    assert prune(world, retention.prune_keepers) == []
    world.database.write(lambda tx: tx.execute(keeper_table.update().values(beat_at=OLD)))
    prune(world, retention.prune_keepers)
    assert [row.id for row in world.rows(KeeperRow)] == [alive, owner]
    # Were its row gone, nobody would ever find what it still owns.
    assert [
        row.id for row in world.database.read(lambda tx: keepers.read_ended_owners(tx, REGION))
    ] == [owner]
    world.give_back(owner)
    assert prune(world, retention.prune_keepers) == [1]
