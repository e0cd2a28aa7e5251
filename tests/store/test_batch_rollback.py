"""Rolling a batch back in reverse order, never while its tasks run."""

from functools import partial
from typing import Any

import pytest

from drumline.domain.release import RunEnd
from drumline.domain.states import Phase, TaskState
from drumline.domain.task import DueTask
from drumline.errors import Conflict, DrumlineError
from drumline.store.tables import NOBODY
from tests.store.stub_gateway import UNDOES, StubGateway, outcome, submitted
from tests.store.world import World, at_once, over


def undoable(gateway: StubGateway, count: int = 3) -> int:
    targets = [{"before_update": {"was": i}} for i in range(count)]
    return submitted(gateway, count=0, type=UNDOES.type, targets=targets)


def test_a_rollback_runs_in_reverse_order_of_completion(gateway: StubGateway, world: World) -> None:
    batch_id = undoable(gateway)
    members = world.members(batch_id)
    keeper = world.keeper()
    for one in members:
        world.run(keeper, [one])
    assert gateway("batch.rollback", batch_id=batch_id)["status"] == "rollback_running"
    assert [due.id for due in world.dues()] == members[::-1]
    assert gateway("batch.show", batch_id=batch_id)["status"] == "rollback_running"
    world.run(keeper)
    assert gateway("batch.show", batch_id=batch_id)["status"] == "rollback_success"
    world.check_laws()


def test_a_rollback_is_refused_while_tasks_run(gateway: StubGateway, world: World) -> None:
    batch_id = undoable(gateway)
    keeper = world.keeper()
    (due,) = world.acquire(keeper, world.members(batch_id)[:1])
    with pytest.raises(Conflict, match="1 task of batch"):
        gateway("batch.rollback", batch_id=batch_id)
    world.release(keeper, [over(due)])
    gateway("batch.rollback", batch_id=batch_id)
    assert set(world.statuses(batch_id)) == {"rollback_pending"}
    world.check_laws()


def test_a_concurrent_acquire_and_rollback_exclude_each_other(
    gateway: StubGateway, world: World
) -> None:
    for _ in range(10):
        batch_id = undoable(gateway, count=1)
        keeper, dues = world.keeper(), world.members(batch_id)
        rolled: list[dict[str, Any] | DrumlineError] = []
        won: list[DueTask] = []
        roll_back = partial(gateway, "batch.rollback", batch_id=batch_id)
        at_once(
            partial(lambda to, work: to.append(outcome(work)), rolled, roll_back),
            partial(lambda to, *who: to.extend(world.acquire(*who)), won, keeper, dues),
        )
        forward = [due for due in won if due.status is TaskState.PENDING]
        assert isinstance(rolled[0], Conflict) == bool(forward), (rolled, won)
        world.check_laws()
        world.set_task(dues[0], status="cancel", owner=NOBODY, finished_at=1)
        world.set_batch(
            batch_id, n_pending=0, n_running=0, n_rollback_pending=0, n_rollback_running=0,
            n_cancel=1, phase="cancel",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("statuses", "phase", "words"),
    [
        (["waiting_callback", "success"], Phase.FORWARD, "still running"),
        (["pending"], Phase.LOADING, "being loaded"),
        (["rollback_pending"], Phase.ROLLBACK, "already being rolled back: rollback_running"),
        (["rollback_success"], Phase.ROLLBACK, "already being rolled back: rollback_success"),
        (["rollback_fail"], Phase.ROLLBACK, "`batch retry`"),
    ],
)
def test_a_rollback_is_refused_in_the_wrong_state(
    gateway: StubGateway, world: World, statuses: list[str], phase: str, words: str
) -> None:
    batch_id, _ = world.scene(statuses, phase, captured=[0])
    world.set_batch(batch_id, batch_type=UNDOES.type)
    with pytest.raises(Conflict, match=words):
        gateway("batch.rollback", batch_id=batch_id)
    assert world.statuses(batch_id) == statuses


def test_the_error_names_a_handler_without_rollback(gateway: StubGateway, world: World) -> None:
    batch_id, _ = world.batch(1, captured=[0])
    world.run(world.keeper())
    with pytest.raises(Conflict, match="has no rollback"):
        gateway("batch.rollback", batch_id=batch_id)


def test_a_batch_without_captures_cannot_be_rolled_back(gateway: StubGateway, world: World) -> None:
    batch_id = submitted(gateway, type=UNDOES.type)
    world.run(world.keeper())
    with pytest.raises(Conflict, match="before_update"):
        gateway("batch.rollback", batch_id=batch_id)


def test_a_cancelled_rollback_can_be_started_again(gateway: StubGateway, world: World) -> None:
    batch_id = undoable(gateway)
    one, two, _ = world.members(batch_id)
    keeper = world.keeper()
    world.run(keeper)
    gateway("batch.rollback", batch_id=batch_id)
    world.run(keeper, [one])
    world.run(keeper, [two], end=RunEnd.ERROR)
    gateway("batch.cancel", batch_id=batch_id)
    assert world.statuses(batch_id) == ["rollback_success", "rollback_fail", "cancel"]
    gateway("batch.rollback", batch_id=batch_id)
    assert world.statuses(batch_id) == ["rollback_success", "rollback_pending", "rollback_pending"]
    world.run(keeper)
    assert gateway("batch.show", batch_id=batch_id)["status"] == "rollback_success"
    world.check_laws()


def test_retry_repeats_failed_rollbacks(gateway: StubGateway, world: World) -> None:
    batch_id = undoable(gateway)
    keeper = world.keeper()
    world.run(keeper)
    gateway("batch.rollback", batch_id=batch_id)
    world.run(keeper, end=RunEnd.ERROR)
    assert gateway("batch.show", batch_id=batch_id)["status"] == "rollback_fail"
    assert gateway("batch.retry", batch_id=batch_id)["retried"] == 3
    assert set(world.statuses(batch_id)) == {"rollback_pending"}
    world.check_laws()
