"""Cancelling, retrying and rescheduling single tasks, also concurrently with other changes."""

import pytest

from drumline.domain.release import RunEnd
from drumline.domain.states import FINISHED, TaskState
from drumline.domain.task import DueTask
from drumline.errors import Conflict, NotFound
from drumline.store.tables import CALLER, NOBODY
from drumline.store.task import instances, runs, tasks
from drumline.store.tx import Tx
from tests.store.world import REGION, SPEC, World, at_once, new_task, over


def cancel(world: World, task_id: int, force: bool = False) -> str:
    return world.database.write(lambda tx: tasks.cancel(tx, task_id, REGION, force))


def retry(world: World, task_id: int) -> TaskState:
    return world.database.write(lambda tx: tasks.retry(tx, task_id, REGION))


def test_a_waiting_task_is_cancelled_at_once(world: World) -> None:
    batch_id, (member, _) = world.batch(2)
    stale = world.dues()
    assert cancel(world, member) == "cancel"
    assert (world.task(member).status, world.task(member).cause) == ("cancel", "cancelled")
    assert world.batch_row(batch_id).n_cancel == 1
    assert [due.id for due in runs.acquire(world.database, world.keeper(), stale)] != [member]
    world.check_laws()


def test_a_task_that_waits_for_its_callback_is_cancelled_at_once(world: World) -> None:
    _, (member,) = world.scene(["waiting_callback"], "forward")
    world.set_task(member, owner=CALLER)
    assert cancel(world, member) == "cancel"
    assert world.task(member).owner == NOBODY
    world.check_laws()


@pytest.mark.parametrize("status", sorted(FINISHED))
def test_a_finished_task_cannot_be_cancelled(world: World, status: str) -> None:
    _, (member,) = world.scene([status], "forward")
    with pytest.raises(Conflict, match=status):
        cancel(world, member)
    world.check_laws()


def test_a_retry_resets_the_counts_of_a_task(world: World) -> None:
    keeper = world.keeper()
    batch_id, (member,) = world.batch(1)
    world.run(keeper, end=RunEnd.ERROR)
    world.set_task(member, retry_time=2, failures=4, deaths=2)
    assert retry(world, member) is TaskState.RETRY_PENDING
    row = world.task(member)
    assert (row.retry_time, row.failures, row.deaths) == (0, 0, 0)
    assert world.batch_row(batch_id).n_retry_pending == 1
    world.run(keeper)
    assert (world.task(member).status, world.task(member).attempt) == ("success", 2)
    world.check_laws()


@pytest.mark.parametrize("status", [s.value for s in TaskState if not s.endswith("fail")])
def test_only_failed_tasks_can_be_retried(world: World, status: str) -> None:
    _, (member,) = world.scene([status], "forward")
    with pytest.raises(Conflict, match=status):
        retry(world, member)


@pytest.mark.parametrize(
    ("status", "phase"), [("fail", "cancel"), ("fail", "rollback"), ("rollback_fail", "forward")]
)
def test_a_task_that_could_not_start_is_not_retried(world: World, status: str, phase: str) -> None:
    """Every scan would find it and every acquire would refuse it."""
    _, (member,) = world.scene([status], phase)
    with pytest.raises(Conflict):
        retry(world, member)
    world.check_laws()


def test_a_retry_needs_its_instance_id(world: World) -> None:
    keeper = world.keeper()

    def schedule(tx: Tx) -> int:
        key = instances.claim(tx, REGION, SPEC.type, "june")
        return tasks.add_one(tx, new_task(tx, instance_id="june", unique_key=key))

    first = world.database.write(schedule)
    with pytest.raises(Conflict, match=str(first)):
        world.database.write(schedule)
    world.run(keeper, end=RunEnd.ERROR)
    second = world.database.write(schedule)
    with pytest.raises(Conflict, match=str(second)):
        retry(world, first)
    world.run(keeper)
    assert retry(world, first) is TaskState.RETRY_PENDING
    with pytest.raises(Conflict, match=str(first)):
        world.database.write(schedule)


def test_a_rescheduled_task_cannot_be_acquired_by_its_old_copy(world: World) -> None:
    keeper = world.keeper()
    single = world.one_shot(due_at=1)
    stale = world.dues()
    world.database.write(lambda tx: tasks.reschedule(tx, single, REGION, 10**15, 9))
    assert runs.acquire(world.database, keeper, stale) == []
    row = world.task(single)
    assert (row.due_at, row.priority, row.status) == (10**15, 9, "pending")
    world.database.write(lambda tx: tasks.reschedule(tx, single, REGION, None, 1))
    assert (world.task(single).due_at, world.task(single).priority) == (10**15, 1)


def test_a_running_task_cannot_be_rescheduled(world: World) -> None:
    single = world.one_shot()
    world.acquire(world.keeper())
    with pytest.raises(Conflict, match="running"):
        world.database.write(lambda tx: tasks.reschedule(tx, single, REGION, 1, None))


def test_a_task_of_another_region_is_not_found(world: World) -> None:
    single = world.one_shot(region="elsewhere")
    for steer in (
        lambda tx: tasks.cancel(tx, single, REGION, False),
        lambda tx: tasks.retry(tx, single, REGION),
        lambda tx: tasks.reschedule(tx, single, REGION, 1, 1),
        lambda tx: tasks.get(tx, single, REGION),
    ):
        with pytest.raises(NotFound):
            world.database.write(steer)
    assert world.task(single).status == "pending"


def test_a_concurrent_cancel_and_acquire_leave_one_state(world: World) -> None:
    for _ in range(10):
        keeper = world.keeper()
        _, (member,) = world.batch(1)
        dues = world.dues([member])

        def take(keeper: int = keeper, dues: list[DueTask] = dues) -> str:
            won = runs.acquire(world.database, keeper, dues)
            return "won" if won else "lost"

        def stop(member: int = member) -> str:
            try:
                return cancel(world, member)
            except Conflict:
                return "conflict"

        took, said = at_once(take, stop)
        row = world.task(member)
        if row.status == "running":
            assert took == "won"
            assert said == ("stopping" if row.stop else "conflict")
        else:
            assert (row.status, took, said) == ("cancel", "lost", "cancel")
        world.check_laws()


def test_a_change_of_a_stale_row_is_refused(world: World) -> None:
    """The state is the same again; the version is not."""
    keeper = world.keeper()
    single = world.one_shot()
    old = world.database.read(lambda tx: tasks.get(tx, single))
    world.run(keeper, end=RunEnd.GIVEN_BACK)

    def late(tx: Tx) -> None:
        tasks._step(tx, old, TaskState.CANCEL, {"finished_at": tx.now})

    with pytest.raises(Conflict, match="changed concurrently"):
        world.database.write(late)
    assert world.task(single).status == "pending"


def test_a_task_is_shown_with_its_owner_result_and_failed_attempts(world: World) -> None:
    keeper = world.keeper("worker-7")
    single = world.one_shot()
    (due,) = world.acquire(keeper)
    shown = world.database.read(lambda tx: tasks.get(tx, single))
    assert (shown.owner_name, shown.fence) == ("worker-7", due.fence)
    assert shown.last_heartbeat is not None
    world.release(keeper, [over(due, RunEnd.TIMEOUT)])
    (due,) = world.acquire(keeper)
    world.release(keeper, [over(due, result="[1]")])
    shown = world.database.read(lambda tx: tasks.get(tx, single))
    assert (shown.owner_name, shown.result, shown.status) == (None, "[1]", "success")
    attempts = world.database.read(lambda tx: tasks.attempts(tx, single))
    assert [(kept.attempt, kept.cause) for kept in attempts] == [(1, "timeout")]
