"""Release: the outcome of a run is written once, as what it was or as a cancel."""

from unittest import mock

import pytest

from drumline.domain.policy import HandlerSpec, Retry
from drumline.domain.release import RunEnd
from drumline.domain.states import BatchOperation, Phase
from drumline.store.batch import batches
from drumline.store.tables import NOBODY
from drumline.store.task import held_tasks
from drumline.store.task import tasks as store_tasks
from tests.store.world import REGION, SPEC, ResultRow, World, over

RETRIED = HandlerSpec(SPEC.target_type, SPEC.type, retry=Retry(retries=2, delay=10, jitter=0))
KIB = 1024


def test_success_keeps_the_result_and_counts(world: World) -> None:
    keeper = world.keeper()
    batch_id, (member,) = world.batch(1)
    (due,) = world.acquire(keeper)
    assert world.release(keeper, [over(due, result='{"answer":42}')]) == []
    row = world.task(member)
    assert (row.status, row.owner, row.cause, row.info) == ("success", NOBODY, None, None)
    assert row.version == due.fence + 1
    assert row.finished_at > 0
    assert world.result(member) == '{"answer":42}'
    assert world.attempts(member) == []
    assert world.batch_row(batch_id).n_success == 1
    world.check_laws()


def test_an_error_fails_and_the_attempt_is_kept(world: World) -> None:
    keeper = world.keeper()
    batch_id, (member,) = world.batch(1)
    (due,) = world.acquire(keeper)
    world.release(keeper, [over(due, RunEnd.ERROR, info="no such host", result='"half"')])
    row = world.task(member)
    assert (row.status, row.cause, row.info) == ("fail", "error", "no such host")
    assert (row.failures, row.attempt) == (1, 1)
    assert row.last_failure_at is not None
    assert world.result(member) == '"half"', "what a failure says is kept, too"
    (kept,) = world.attempts(member)
    assert (kept.attempt, kept.cause, kept.info) == (1, "error", "no such host")
    assert (kept.worker, kept.started_at) == ("worker", 1)
    assert world.batch_row(batch_id).n_fail == 1
    world.check_laws()


def test_an_error_is_retried_as_its_handler_asks(world: World) -> None:
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    for failures, wait in ((1, 10), (2, 20)):
        (due,) = world.acquire(keeper)
        world.release(keeper, [over(due, RunEnd.ERROR, handler=RETRIED)])
        row = world.task(member)
        assert (row.status, row.owner, row.failures) == ("pending", 0, failures)
        assert row.due_at - row.updated_at == wait * 1_000_000
        assert row.finished_at == 0
    (due,) = world.acquire(keeper)
    world.release(keeper, [over(due, RunEnd.ERROR, handler=RETRIED)])
    assert world.task(member).status == "fail"
    assert [kept.attempt for kept in world.attempts(member)] == [1, 2, 3]
    world.check_laws()


def test_a_timeout_is_retried_twice_and_then_fails(world: World) -> None:
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    for retry_time in (1, 2):
        world.run(keeper, end=RunEnd.TIMEOUT)
        row = world.task(member)
        assert (row.status, row.cause, row.retry_time) == ("pending", "timeout", retry_time)
    world.run(keeper, end=RunEnd.TIMEOUT)
    row = world.task(member)
    assert (row.status, row.cause, row.retry_time, row.attempt) == ("fail", "timeout", 2, 3)
    world.check_laws()


def test_what_is_given_back_has_lost_nothing(world: World) -> None:
    """Neither an attempt nor what is known of the last failure."""
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    (due,) = world.acquire(keeper)
    world.release(keeper, [over(due, RunEnd.ERROR, info="refused", handler=RETRIED)])
    before = world.task(member)
    world.run(keeper, end=RunEnd.GIVEN_BACK)
    after = world.task(member)
    for name in ("status", "attempt", "failures", "cause", "info", "due_at", "last_failure_at"):
        assert getattr(after, name) == getattr(before, name), name
    assert len(world.attempts(member)) == 1
    world.run(keeper)
    assert (world.task(member).cause, world.task(member).info) == (None, None)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (RunEnd.SUCCESS, "rollback_success"),
        (RunEnd.ERROR, "rollback_fail"),
        (RunEnd.TIMEOUT, "rollback_pending"),
        (RunEnd.DIED, "rollback_pending"),
        (RunEnd.GIVEN_BACK, "rollback_pending"),
        (RunEnd.KILLED, "cancel"),
    ],
)
def test_a_rollback_ends_as_a_rollback(world: World, end: RunEnd, status: str) -> None:
    keeper = world.keeper()
    _, (member,) = world.scene(["rollback_pending"], "rollback", captured=[0])
    world.run(keeper, end=end)
    assert world.task(member).status == status
    world.check_laws()


def test_a_group_of_many_ends_is_one_commit(world: World) -> None:
    keeper = world.keeper()
    first, _ = world.batch(4)
    second, _ = world.batch(3)
    lonely = world.one_shot()
    dues = world.acquire(keeper)
    ends = [RunEnd.SUCCESS, RunEnd.ERROR, RunEnd.TIMEOUT, RunEnd.GIVEN_BACK] * 2
    ended = [over(due, end, result=f'"{due.id}"') for due, end in zip(dues, ends, strict=True)]
    apply = batches.apply_counter_changes
    with mock.patch.object(batches, "apply_counter_changes", wraps=apply) as commits:
        assert world.release(keeper, ended) == []
    assert commits.call_count == 1
    assert world.statuses(first) == ["success", "fail", "pending", "pending"]
    assert world.statuses(second) == ["success", "fail", "pending"]
    assert world.task(lonely).status == "pending"
    said = {RunEnd.SUCCESS, RunEnd.ERROR}
    spoke = {due.id for due, end in zip(dues, ends, strict=True) if end in said}
    assert {row.task_id: row.value for row in world.rows(ResultRow)} == {i: f'"{i}"' for i in spoke}
    world.check_laws()


def test_a_later_result_replaces_the_earlier(world: World) -> None:
    keeper = world.keeper()
    batch_id, (member,) = world.batch(1, captured=[0])
    (due,) = world.acquire(keeper)
    world.release(keeper, [over(due, result='"done"')])
    world.run_operation(batch_id, BatchOperation.ROLLBACK, Phase.ROLLBACK)
    (due,) = world.acquire(keeper)
    world.release(keeper, [over(due, result='"undone"')])
    assert world.task(member).status == "rollback_success"
    assert world.result(member) == '"undone"'


def test_results_larger_together_than_a_packet_are_kept(world: World) -> None:
    """The server takes 16 MB at a time; every quote is sent as two bytes."""
    keeper = world.keeper()
    for _ in range(150):
        world.one_shot()
    text = '"' + '"' * (64 * KIB - 2) + '"'
    dues = world.acquire(keeper)
    assert world.release(keeper, [over(due, result=text) for due in dues]) == []
    assert {len(row.value) for row in world.rows(ResultRow)} == {64 * KIB}
    assert len(world.rows(ResultRow)) == 150


# --- cancelled -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", list(RunEnd))
def test_in_a_cancelled_batch_every_end_is_cancel(world: World, end: RunEnd) -> None:
    keeper = world.keeper()
    batch_id, members = world.batch(2)
    other, (elsewhere,) = world.batch(1)
    dues = world.acquire(keeper)
    world.run_operation(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    assert world.release(keeper, [over(due, end) for due in dues[:2]]) == []
    assert world.release(keeper, [over(dues[2])]) == []
    assert world.statuses(batch_id) == ["cancel", "cancel"]
    assert world.task(members[0]).cause == "cancelled"
    assert world.task(elsewhere).status == "success"
    assert world.batch_row(other).n_success == 1
    world.check_laws()


def test_a_batch_cancelled_between_look_and_write_still_cancels_its_runs(world: World) -> None:
    """Before the batch operation has reached them: only the batch row is cancelled."""
    keeper = world.keeper()
    batch_id, _ = world.batch(3)
    free = world.one_shot()
    dues = world.acquire(keeper)
    assert world.begin(batch_id, BatchOperation.CANCEL, Phase.CANCEL)
    assert world.release(keeper, [over(due) for due in dues]) == []
    assert world.statuses(batch_id) == ["cancel"] * 3
    assert world.task(free).status == "success"
    world.check_laws()


@pytest.mark.parametrize("force", [False, True])
def test_a_task_that_was_asked_to_stop_ends_as_cancel(world: World, force: bool) -> None:
    keeper = world.keeper()
    _, members = world.batch(3)
    dues = world.acquire(keeper)
    said = world.database.write(lambda tx: store_tasks.cancel(tx, members[1], REGION, force))
    assert said == ("killing" if force else "stopping")
    stops = world.database.read(lambda tx: held_tasks.read_tasks_to_kill(tx, REGION, keeper))
    assert stops == ([(members[1], dues[1].fence)] if force else [])
    assert world.release(keeper, [over(due) for due in dues]) == []
    assert [world.task(m).status for m in members] == ["success", "cancel", "success"]
    assert world.task(members[1]).stop == 0
    world.check_laws()


def test_a_killed_run_is_cancel_without_having_been_asked_in_the_database(world: World) -> None:
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    world.run(keeper, end=RunEnd.KILLED)
    assert (world.task(member).status, world.task(member).cause) == ("cancel", "cancelled")
    world.check_laws()


def test_what_was_cancelled_before_it_started_has_not_been_attempted(world: World) -> None:
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    (due,) = world.acquire(keeper)
    world.database.write(lambda tx: store_tasks.cancel(tx, member, REGION, force=False))
    world.release(keeper, [over(due, RunEnd.GIVEN_BACK)])
    assert (world.task(member).status, world.task(member).attempt) == ("cancel", 0)
    assert world.attempts(member) == []


# --- one-shots -----------------------------------------------------------------------------------


def test_an_instance_is_free_again_when_its_task_has_ended_and_not_before(world: World) -> None:
    keeper = world.keeper()
    single = world.one_shot(instance_id="i", unique_key="key")
    (due,) = world.acquire(keeper)
    world.release(keeper, [over(due, RunEnd.TIMEOUT)])
    assert world.task(single).unique_key == "key"
    world.run(keeper)
    assert world.task(single).unique_key is None
