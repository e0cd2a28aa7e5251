"""Retrying the failed tasks of a batch, all or some of them."""

import pytest

from drumline.domain.release import RunEnd
from drumline.domain.states import Phase
from drumline.errors import Conflict, NotFound
from tests.store.stub_gateway import StubGateway, submitted
from tests.store.world import World


def test_retry_runs_all_failed_tasks_again(gateway: StubGateway, world: World) -> None:
    batch_id = submitted(gateway)
    keeper = world.keeper()
    world.run(keeper, world.members(batch_id)[:1])
    world.run(keeper, end=RunEnd.ERROR)
    assert gateway("batch.retry", batch_id=batch_id)["retried"] == 2
    assert world.statuses(batch_id) == ["success", "retry_pending", "retry_pending"]
    world.run(keeper)
    assert gateway("batch.show", batch_id=batch_id)["status"] == "success"
    world.check_laws()


def test_retry_of_chosen_tasks_is_all_or_nothing(gateway: StubGateway, world: World) -> None:
    batch_id = submitted(gateway)
    one, two, three = world.members(batch_id)
    keeper = world.keeper()
    world.run(keeper, [one])
    world.run(keeper, end=RunEnd.ERROR)
    with pytest.raises(Conflict, match=f"task {one} is success"):
        gateway("batch.retry", batch_id=batch_id, task_ids=[two, one])
    assert world.statuses(batch_id) == ["success", "fail", "fail"]
    assert gateway("batch.retry", batch_id=batch_id, task_ids=[three, three])["retried"] == 1
    assert world.statuses(batch_id) == ["success", "fail", "retry_pending"]
    world.check_laws()


def test_a_task_of_another_batch_is_not_found(gateway: StubGateway, world: World) -> None:
    batch_id, other = submitted(gateway), submitted(gateway)
    world.run(world.keeper(), end=RunEnd.ERROR)
    foreign = world.members(other)[0]
    with pytest.raises(NotFound, match=f"task {foreign} in batch {batch_id}"):
        gateway("batch.retry", batch_id=batch_id, task_ids=[foreign])


@pytest.mark.parametrize(
    ("statuses", "phase", "words"),
    [
        (["success"], Phase.FORWARD, "no failed task"),
        (["fail", "cancel"], Phase.CANCEL, "is cancelled"),
        (["fail", "rollback_success"], Phase.ROLLBACK, "no failed task"),
        (["pending"], Phase.LOADING, "being loaded"),
    ],
)
def test_a_retry_is_refused_in_the_wrong_state(
    gateway: StubGateway, world: World, statuses: list[str], phase: str, words: str
) -> None:
    batch_id, _ = world.scene(statuses, phase)
    with pytest.raises(Conflict, match=words):
        gateway("batch.retry", batch_id=batch_id)
    assert world.statuses(batch_id) == statuses


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("fail", Phase.CANCEL),
        ("fail", Phase.ROLLBACK),
        ("rollback_fail", Phase.CANCEL),
    ],
)
def test_a_task_that_its_batch_cannot_start_is_not_retried(
    gateway: StubGateway, world: World, status: str, phase: str
) -> None:
    batch_id, (only,) = world.scene([status], phase, captured=[0])
    for command, arguments in (
        ("task.retry", {"task_id": only}),
        ("batch.retry", {"batch_id": batch_id, "task_ids": [only]}),
    ):
        with pytest.raises(Conflict, match="cannot be retried"):
            gateway(command, **arguments)
    assert world.statuses(batch_id) == [status]
