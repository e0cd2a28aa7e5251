"""Batch operations: one change to all tasks of a batch, with crashes and races between chunks."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import update

from drumline.domain.release import RunEnd
from drumline.domain.states import BatchOperation, Phase, TaskState
from drumline.store.batch import batches, operations
from drumline.store.tables import STOP_CANCEL, batch, task
from drumline.store.task import held_tasks, runs
from drumline.store.task import tasks as store_tasks
from drumline.store.tx import RaceLost, Tx
from tests.store.world import REGION, Crash, World, at_once, crash_after, over, while_open

CHUNK = 3

EVERY = [
    "pending",
    "retry_pending",
    "success",
    "fail",
    "cancel",
    "rollback_pending",
    "rollback_success",
    "rollback_fail",
    "waiting_callback",
]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "CHUNK", CHUNK)


@pytest.mark.parametrize(
    ("operation", "phase", "captured", "after"),
    [
        (BatchOperation.OPEN, Phase.FORWARD, False, EVERY),
        (
            BatchOperation.CANCEL,
            Phase.CANCEL,
            False,
            ["cancel", "cancel", "success", "fail", "cancel", "cancel",
             "rollback_success", "rollback_fail", "cancel"],
        ),
        (
            BatchOperation.RETRY,
            Phase.FORWARD,
            False,
            ["pending", "retry_pending", "success", "retry_pending", "cancel",
             "rollback_pending", "rollback_success", "rollback_fail", "waiting_callback"],
        ),
        (
            BatchOperation.RETRY,
            Phase.ROLLBACK,
            False,
            ["pending", "retry_pending", "success", "fail", "cancel",
             "rollback_pending", "rollback_success", "rollback_pending", "waiting_callback"],
        ),
        (
            BatchOperation.ROLLBACK,
            Phase.ROLLBACK,
            True,
            ["rollback_pending"] * 6
            + ["rollback_success", "rollback_pending", "waiting_callback"],
        ),
        (
            BatchOperation.ROLLBACK,
            Phase.ROLLBACK,
            False,
            ["cancel", "cancel", "success", "fail", "cancel", "rollback_pending",
             "rollback_success", "rollback_fail", "waiting_callback"],
        ),
    ],
)  # fmt: skip
def test_what_each_operation_makes_of_each_state(
    world: World, operation: BatchOperation, phase: Phase, captured: bool, after: list[str]
) -> None:
    captures = range(len(EVERY)) if captured else ()
    batch_id, members = world.scene(EVERY, phase, captured=captures)
    before = [world.task(member).version for member in members]
    world.run_operation(batch_id, operation, phase)
    assert world.statuses(batch_id) == after
    for member, status, old, version in zip(members, EVERY, after, before, strict=True):
        if status != old:
            assert world.task(member).version > version, "a stale copy could still be acquired"
    row = world.batch_row(batch_id)
    assert (row.operation, row.operation_after) == (None, 0)
    world.check_laws()


def test_opening_lets_exactly_the_loaded_tasks_run(world: World) -> None:
    batch_id, members = world.batch(7, opened=False)
    assert world.dues() == []
    assert world.acquire(world.keeper()) == []
    world.check_laws()
    row = world.batch_row(batch_id)
    assert world.database.write(lambda tx: operations.open_batch(tx, row, unowned=True))
    assert not world.database.write(lambda tx: operations.open_batch(tx, row, unowned=True))
    operations.run_operation(world.database, batch_id)
    assert [due.id for due in world.dues()] == members
    world.check_laws()


def test_tasks_opened_by_an_early_chunk_may_run_before_the_last(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(7, opened=False)
    world.begin(batch_id, BatchOperation.OPEN, Phase.FORWARD)
    crash(world, batch_id, after_chunks=1)
    world.run(keeper)
    assert world.statuses(batch_id) == ["success"] * 3 + ["pending"] * 4
    assert world.upkeep(batch_id) == "running"
    operations.run_operation(world.database, batch_id)
    assert [due.id for due in world.dues()] == members[3:]
    world.check_laws()


def crash(world: World, batch_id: int, after_chunks: int) -> None:
    with crash_after(world.database, after_chunks), pytest.raises(Crash):
        operations.run_operation(world.database, batch_id)


@pytest.mark.parametrize("chunks", [0, 1, 2])
@pytest.mark.parametrize(
    ("operation", "phase", "start", "end"),
    [
        (BatchOperation.CANCEL, Phase.CANCEL, "pending", "cancel"),
        (BatchOperation.RETRY, Phase.FORWARD, "fail", "retry_pending"),
        (BatchOperation.ROLLBACK, Phase.ROLLBACK, "success", "rollback_pending"),
    ],
)
def test_a_crash_between_chunks_only_delays(
    world: World, operation: BatchOperation, phase: Phase, start: str, end: str, chunks: int
) -> None:
    size = 3 * CHUNK - 1
    batch_id, _ = world.scene([start] * size, "forward", captured=range(size))
    world.begin(batch_id, operation, phase)
    crash(world, batch_id, after_chunks=chunks)
    done = chunks * CHUNK
    assert world.statuses(batch_id) == [end] * done + [start] * (size - done)
    assert world.batch_row(batch_id).operation == operation
    world.check_laws()
    assert world.upkeep(batch_id) not in ("success", "fail"), "it is not over yet"
    assert not world.batch_row(batch_id).finished
    operations.run_operation(world.database, batch_id)
    assert world.statuses(batch_id) == [end] * size
    world.check_laws()


@pytest.mark.parametrize("size", [CHUNK, 2 * CHUNK])
def test_a_batch_of_whole_chunks_comes_to_an_end(world: World, size: int) -> None:
    batch_id, _ = world.batch(size)
    world.run_operation(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    assert world.statuses(batch_id) == ["cancel"] * size
    assert world.batch_row(batch_id).operation is None


def test_two_who_carry_out_the_same_operation_do_it_once(world: World) -> None:
    for operation, phase, start, end in (
        (BatchOperation.CANCEL, Phase.CANCEL, "pending", "cancel"),
        (BatchOperation.RETRY, Phase.FORWARD, "fail", "retry_pending"),
        (BatchOperation.ROLLBACK, Phase.ROLLBACK, "success", "rollback_pending"),
    ):
        batch_id, members = world.scene([start] * 20, "forward", captured=range(20))
        before = [world.task(member).version for member in members]
        world.begin(batch_id, operation, phase)
        at_once(*[lambda b=batch_id: operations.run_operation(world.database, b)] * 3)
        assert world.statuses(batch_id) == [end] * 20
        assert [world.task(m).version for m in members] == [version + 1 for version in before]
        world.check_laws()


def test_a_chunk_that_two_have_read_is_written_by_one(world: World) -> None:
    """Opening leaves a task's state as it is: only the batch tells that it has been done."""
    batch_id, members = world.batch(7, opened=False)
    before = [world.task(member).version for member in members]
    world.begin(batch_id, BatchOperation.OPEN, Phase.FORWARD)
    while_open(
        world.database,
        lambda tx: operations._run_chunk(tx, batch_id),
        lambda: operations.run_operation(world.database, batch_id),
    )
    operations.run_operation(world.database, batch_id)
    assert [world.task(m).version for m in members] == [version + 1 for version in before]
    assert [due.id for due in world.dues()] == members
    world.check_laws()


def test_a_task_that_moves_while_its_chunk_is_written_is_looked_at_again(world: World) -> None:
    """It waited for a callback when the chunk was read, and waits to run when it is written."""
    batch_id, (moving, *_) = world.scene(["waiting_callback", "pending"], "forward")
    world.begin(batch_id, BatchOperation.CANCEL, Phase.CANCEL)

    def move(tx: Tx) -> None:
        values = {"status": "pending", "version": 99}
        tx.execute(update(task).where(task.c.id == moving).values(**values))
        tx.record_counter_change(batch_id, TaskState.WAITING_CALLBACK, TaskState.PENDING, 1)

    while_open(world.database, move, lambda: operations.run_operation(world.database, batch_id))
    assert world.statuses(batch_id) == ["cancel", "cancel"]
    world.check_laws()


@pytest.mark.parametrize(
    "meanwhile",
    [{"operation": "kill"}, {"operation_after": 1}, {"phase_at": 17}, {"operation": None}],
)
def test_a_chunk_of_a_operation_that_is_no_longer_that_one_is_not_written(
    world: World, meanwhile: dict[str, Any]
) -> None:
    batch_id, _ = world.batch(4)
    world.begin(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    late = world.batch_row(batch_id)
    world.set_batch(batch_id, **meanwhile)
    with (
        mock.patch.object(operations, "get", lambda tx, batch_id: late),
        pytest.raises(RaceLost),
    ):
        world.database.write(lambda tx: operations._run_chunk(tx, batch_id))
    assert world.statuses(batch_id) == ["pending"] * 4


def test_cancelling_asks_what_runs_to_stop_and_killing_wants_it_killed(world: World) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(7)
    dues = world.acquire(keeper, members[:4])
    world.run_operation(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    assert world.statuses(batch_id) == ["running"] * 4 + ["cancel"] * 3
    assert [world.task(member).stop for member in members] == [STOP_CANCEL] * 4 + [0] * 3
    assert to_kill(world, keeper) == []
    world.run_operation(batch_id, BatchOperation.KILL, Phase.CANCEL)
    assert to_kill(world, keeper) == members[:4]
    world.run_operation(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    assert to_kill(world, keeper) == members[:4], "a kill is not taken back by a later cancel"
    world.release(keeper, [over(due, RunEnd.KILLED) for due in dues])
    assert world.statuses(batch_id) == ["cancel"] * 7
    assert world.upkeep(batch_id) == "cancel"
    assert world.batch_row(batch_id).finished
    world.check_laws()


def to_kill(world: World, keeper: int) -> list[int]:
    found = world.database.read(lambda tx: held_tasks.read_tasks_to_kill(tx, REGION, keeper))
    return sorted(task_id for task_id, _ in found)


def test_a_task_to_be_killed_stays_so_when_it_is_also_cancelled(world: World) -> None:
    keeper = world.keeper()
    single = world.one_shot()
    world.acquire(keeper)
    world.database.write(lambda tx: store_tasks.cancel(tx, single, REGION, force=True))
    world.database.write(lambda tx: store_tasks.cancel(tx, single, REGION, force=False))
    assert to_kill(world, keeper) == [single]


def test_a_cancel_takes_the_place_of_whatever_was_being_carried_out(world: World) -> None:
    for operation, phase in (
        (BatchOperation.OPEN, Phase.FORWARD),
        (BatchOperation.ROLLBACK, Phase.ROLLBACK),
    ):
        opened = operation is not BatchOperation.OPEN
        batch_id, _ = world.batch(8, captured=range(8), opened=opened)
        world.begin(batch_id, operation, phase)
        crash(world, batch_id, after_chunks=1)
        world.run_operation(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
        assert world.statuses(batch_id) == ["cancel"] * 8
        world.check_laws()


def test_who_carries_out_a_operation_that_was_replaced_changes_nothing_by_it(world: World) -> None:
    """Between the read of a chunk and its commit, the batch is cancelled instead."""
    batch_id, members = world.scene(["fail"] * 4, "forward", captured=range(4))
    world.begin(batch_id, BatchOperation.RETRY, Phase.FORWARD)
    late = world.batch_row(batch_id)
    world.run_operation(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    world.run_operation(batch_id, BatchOperation.ROLLBACK, Phase.ROLLBACK)
    with pytest.MonkeyPatch.context() as patch:
        really, rows = batches.get, [late]
        patch.setattr(operations, "get", lambda tx, i: rows.pop() if rows else really(tx, i))
        operations.run_operation(world.database, batch_id)
    assert world.statuses(batch_id) == ["rollback_pending"] * 4
    assert members
    world.check_laws()


def test_begin_is_refused_when_the_batch_has_changed(world: World) -> None:
    batch_id, _ = world.batch(2)
    stale = world.batch_row(batch_id)
    assert world.begin(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    begun = world.database.write(
        lambda tx: operations.begin_operation(tx, stale, BatchOperation.ROLLBACK, Phase.ROLLBACK)
    )
    assert not begun
    assert world.batch_row(batch_id).phase == "cancel"


def test_a_condition_is_looked_at_when_the_operation_begins(world: World) -> None:
    """Counters change without the batch's version: the refusal must be part of the write."""
    keeper = world.keeper()
    batch_id, _ = world.batch(2)
    row = world.batch_row(batch_id)
    world.acquire(keeper)
    begun = world.database.write(
        lambda tx: operations.begin_operation(
            tx, row, BatchOperation.ROLLBACK, Phase.ROLLBACK, batch.c.n_running == 0
        )
    )
    assert not begun
    world.check_laws()


# --- rollback ----------------------------------------------------------------------------------


def test_a_rollback_goes_back_in_reverse_order_of_completion(world: World) -> None:
    keeper = world.keeper()
    size = 6
    batch_id, members = world.batch(size, captured=range(size))
    order = [3, 0, 5, 1, 4, 2]
    dues = world.acquire(keeper)
    for place in order:
        world.release(keeper, [over(dues[place])])
    world.run_operation(batch_id, BatchOperation.ROLLBACK, Phase.ROLLBACK)
    found = world.dues()
    assert [due.id for due in found] == [members[place] for place in reversed(order)]
    phase_at = world.batch_row(batch_id).phase_at
    assert all(due.due_at <= phase_at for due in found), "it waits for nothing"


def test_failed_and_cancelled_tasks_that_may_have_changed_something_are_rolled_back(
    world: World,
) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(5)
    dues = world.acquire(keeper, members[:4])
    for due in dues[:3]:
        assert runs.capture(world.database, keeper, due.id, due.fence, '"old"', '"new"')
    world.release(keeper, [over(dues[0]), over(dues[1], RunEnd.ERROR)])
    world.run_operation(batch_id, BatchOperation.KILL, Phase.CANCEL)
    world.release(keeper, [over(due, RunEnd.KILLED) for due in dues[2:]])
    assert world.statuses(batch_id) == ["success", "fail", "cancel", "cancel", "cancel"]
    world.run_operation(batch_id, BatchOperation.ROLLBACK, Phase.ROLLBACK)
    assert world.statuses(batch_id) == ["rollback_pending"] * 3 + ["cancel", "cancel"]
    world.run(keeper)
    assert world.statuses(batch_id) == ["rollback_success"] * 3 + ["cancel", "cancel"]
    assert world.upkeep(batch_id) == "rollback_success"
    world.check_laws()


def test_captured_and_uncaptured_tasks_of_one_chunk_go_different_ways(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "CHUNK", 100)
    statuses = ["pending", "pending", "cancel", "cancel", "success", "success", "fail", "fail"]
    batch_id, _ = world.scene(statuses, "forward", captured=[0, 2, 4, 6])
    world.run_operation(batch_id, BatchOperation.ROLLBACK, Phase.ROLLBACK)
    back = "rollback_pending"
    assert world.statuses(batch_id) == [
        back, "cancel", back, "cancel", back, "success", back, "fail",
    ]  # fmt: skip
    world.check_laws()


def test_a_rollback_starts_with_fresh_counts(world: World) -> None:
    batch_id, (member,) = world.scene(["fail"], "forward", captured=[0])
    world.set_task(member, retry_time=2, failures=3, deaths=2)
    world.run_operation(batch_id, BatchOperation.ROLLBACK, Phase.ROLLBACK)
    row = world.task(member)
    assert (row.retry_time, row.failures, row.deaths, row.finished_at) == (0, 0, 0, 0)


def test_during_a_rollback_the_change_cannot_be_retried(world: World) -> None:
    batch_id, members = world.scene(["fail", "rollback_fail"], "rollback", captured=[1])
    world.run_operation(batch_id, BatchOperation.RETRY, Phase.ROLLBACK)
    keeper = world.keeper()
    assert [due.id for due in world.acquire(keeper)] == members[1:]
    world.check_laws()


def states_after_all(world: World, batch_id: int) -> Sequence[str]:
    """Run whatever waits until nothing does."""
    keeper = world.keeper()
    while world.acquire(keeper) or world.dues():
        world.give_back(keeper)
        world.run(keeper)
    return world.statuses(batch_id)


def test_a_rolled_back_batch_comes_to_rest(world: World) -> None:
    batch_id, _ = world.scene(EVERY[:8], "forward", captured=range(0, 8, 2))
    world.run_operation(batch_id, BatchOperation.ROLLBACK, Phase.ROLLBACK)
    assert set(states_after_all(world, batch_id)) <= {
        "cancel", "success", "fail", "rollback_success", "rollback_fail",
    }  # fmt: skip
    world.check_laws()
