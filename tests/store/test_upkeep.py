"""A batch's status follows its counters, and its counters can be repaired."""

import random

import pytest

from drumline.domain.release import RunEnd
from drumline.domain.states import BatchOperation, Phase, TaskState
from drumline.store.batch import batches
from drumline.store.rows import BatchRow
from drumline.store.tables import batch, count_column
from drumline.store.task import runs, tasks
from drumline.store.tx import Tx
from tests.store.world import REGION, World, at_once, over, while_open


def test_a_batch_goes_from_pending_to_success(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(2)
    assert world.upkeep(batch_id) == "pending"
    world.run(keeper, members[:1])
    assert world.upkeep(batch_id) == "running"
    assert not world.batch_row(batch_id).finished
    world.run(keeper)
    assert world.upkeep(batch_id) == "success"
    assert world.batch_row(batch_id).finished


@pytest.mark.parametrize(
    ("statuses", "phase", "status", "over"),
    [
        (["fail", "fail"], "forward", "fail", True),
        (["success", "fail"], "forward", "partial_fail", True),
        (["success", "cancel"], "forward", "partial_fail", True),
        (["success", "retry_pending"], "forward", "running", False),
        (["cancel", "running"], "cancel", "cancel", False),
        (["cancel", "success"], "cancel", "cancel", True),
        (["rollback_success", "rollback_pending"], "rollback", "rollback_running", False),
        (["rollback_success", "success"], "rollback", "rollback_success", True),
        (["rollback_success", "rollback_fail"], "rollback", "rollback_fail", True),
    ],
)
def test_status_and_whether_it_is_over(
    world: World, statuses: list[str], phase: str, status: str, over: bool
) -> None:
    batch_id, _ = world.scene(statuses, phase)
    assert world.upkeep(batch_id) == status
    assert world.batch_row(batch_id).finished is over


def test_a_batch_that_is_being_spread_over_is_not_over(world: World) -> None:
    """Its counters say so before the batch operation has reached the tasks."""
    batch_id, _ = world.scene(["success", "success"], "forward", captured=[0, 1])
    world.begin(batch_id, BatchOperation.ROLLBACK, Phase.ROLLBACK)
    assert world.upkeep(batch_id) == "rollback_running"
    assert not world.batch_row(batch_id).finished
    world.begin(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    assert world.upkeep(batch_id) == "cancel"
    assert not world.batch_row(batch_id).finished


def test_upkeep_does_not_write_over_what_changed_since_it_looked(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(2)
    world.run(keeper, members[:1])
    row = world.batch_row(batch_id)
    world.run(keeper)  # changes counters, not the version
    assert world.database.write(lambda tx: batches.update_status(tx, row)) is None
    row = world.batch_row(batch_id)
    world.begin(
        batch_id, BatchOperation.CANCEL, Phase.CANCEL
    )  # changes the version, not the counters
    assert world.database.write(lambda tx: batches.update_status(tx, row)) is None
    assert world.batch_row(batch_id).status == "pending"


@pytest.mark.parametrize("all_of_it", [True, False])
def test_a_finished_batch_of_which_something_is_retried_is_not_finished(
    world: World, all_of_it: bool
) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(2)
    world.run(keeper, end=RunEnd.ERROR)
    assert world.upkeep(batch_id) == "fail"
    assert world.batch_row(batch_id).finished
    if all_of_it:
        world.run_operation(batch_id, BatchOperation.RETRY, Phase.FORWARD)
    else:
        world.database.write(lambda tx: tasks.retry(tx, members[0], REGION))
    assert not world.batch_row(batch_id).finished
    assert world.upkeep(batch_id) == "running"


def test_unfinished_batches_come_in_pages_none_left_out(world: World) -> None:
    made = [world.batch(1)[0] for _ in range(7)]
    world.set_batch(made[3], finished=True)
    found: list[int] = []

    def page(tx: Tx) -> list[BatchRow]:
        return batches.unfinished(tx, REGION, found[-1] if found else 0, 2)

    while rows := world.database.read(page):
        assert len(rows) <= 2
        found += [row.id for row in rows]
    assert found == [b for b in made if b != made[3]]
    assert world.database.read(lambda tx: batches.unfinished(tx, "elsewhere", 0, 100)) == []


# --- recount -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_recount_repairs_whatever_the_counters_say(world: World, seed: int) -> None:
    chance = random.Random(seed)
    statuses = chance.choices([state.value for state in TaskState], k=12)
    batch_id, _ = world.scene(statuses, "forward")
    other, _ = world.batch(2)
    wrong = {count_column(state): chance.randint(-5, 5) for state in TaskState}
    world.set_batch(batch_id, **wrong, total=99, finished=True)
    assert batches.is_miscounted(world.batch_row(batch_id))
    found = world.database.write(lambda tx: batches.recount(tx, batch_id))
    assert found == {state: statuses.count(state.value) for state in TaskState}
    row = world.batch_row(batch_id)
    assert batches.counts(row) == found
    assert (row.total, row.finished) == (12, False)
    assert not batches.is_miscounted(row)
    assert world.batch_row(other).n_pending == 2


def test_what_is_miscounted(world: World) -> None:
    batch_id, _ = world.batch(3)
    assert not batches.is_miscounted(world.batch_row(batch_id))
    world.set_batch(batch_id, n_pending=4, n_running=-1)
    assert batches.is_miscounted(world.batch_row(batch_id))
    world.set_batch(batch_id, n_pending=2, n_running=0)
    assert batches.is_miscounted(world.batch_row(batch_id))


def test_a_recount_in_the_middle_of_moves_is_right(world: World) -> None:
    keeper = world.keeper()
    batch_id, _ = world.batch(60)
    dues = world.acquire(keeper)
    world.set_batch(batch_id, n_running=7)

    def release() -> None:
        for start in range(0, 60, 5):
            world.release(keeper, [over(due) for due in dues[start : start + 5]])

    def recount() -> None:
        for _ in range(10):
            world.database.write(lambda tx: batches.recount(tx, batch_id))

    at_once(release, recount)
    assert world.statuses(batch_id) == ["success"] * 60
    world.check_laws()


def test_a_move_that_waits_for_a_recount_is_added_to_it(world: World) -> None:
    keeper = world.keeper()
    batch_id, _ = world.batch(4)
    dues = world.acquire(keeper)
    world.set_batch(batch_id, n_running=0, n_fail=4)
    while_open(
        world.database,
        lambda tx: batches.recount(tx, batch_id),
        lambda: world.release(keeper, [over(due) for due in dues[:2]]),
    )
    assert world.batch_row(batch_id).n_running == 2
    world.check_laws()


def test_a_recount_that_meets_an_uncommitted_move_counts_it_once(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(4)
    world.set_batch(batch_id, n_pending=0, n_fail=4)

    dues = world.dues(members[:3])

    def move(tx: Tx) -> None:
        """As acquire does it, up to where it pays the counters."""
        runs._acquire(tx, keeper, dues)

    while_open(
        world.database, move, lambda: world.database.write(lambda tx: batches.recount(tx, batch_id))
    )
    world.check_laws()


# --- shown -------------------------------------------------------------------------------------


def test_batches_are_listed_newest_first_in_pages(world: World) -> None:
    made = [world.batch(1)[0] for _ in range(5)]
    world.set_batch(made[1], status="success")

    def page(status: str | None, before: int | None) -> list[int]:
        rows = world.database.read(lambda tx: batches.listed(tx, REGION, status, before, 3))
        return [row.id for row in rows]

    assert page(None, None) == made[:1:-1]
    assert page(None, made[2]) == [made[1], made[0]]
    assert page("success", None) == [made[1]]
    assert world.rows(BatchRow, batch.c.region != REGION) == []
