"""Give back: what a dead keeper held runs again, and only what it was running is charged."""

from contextlib import suppress

import pytest

from drumline.domain.policy import HandlerSpec, OnDeath
from drumline.domain.release import RunEnd
from drumline.domain.states import BatchOperation, KeeperState, Phase
from drumline.domain.task import DueTask
from drumline.store.node import keepers
from drumline.store.node.keepers import KeeperDead
from drumline.store.rows import KeeperRow
from drumline.store.task import held_tasks, runs
from drumline.store.task import tasks as store_tasks
from tests.store.world import (
    LIMITS,
    REGION,
    SPEC,
    World,
    at_once,
    commit_of_unknown_fate,
    over,
)


def test_everything_a_dead_keeper_holds_waits_again_under_a_new_version(world: World) -> None:
    dead, other = world.keeper("dead"), world.keeper("other")
    batch_id, members = world.batch(4)
    world.acquire(dead, members[:3])
    world.acquire(other, members[3:])
    world.die(dead)
    assert sorted(run.id for run in world.give_back(dead)) == members[:3]
    for member in members[:3]:
        row = world.task(member)
        assert (row.status, row.owner, row.attempt, row.deaths) == ("pending", 0, 0, 0)
        assert row.version > row.fence
        assert world.attempts(member) == []
    assert world.task(members[3]).owner == other
    assert world.batch_row(batch_id).n_pending == 3
    world.check_laws()


def test_only_what_had_started_is_charged_with_the_death(world: World) -> None:
    dead = world.keeper()
    _, (started, bystander) = world.batch(2)
    world.acquire(dead)
    world.die(dead)
    world.give_back(dead, died=[started])
    row = world.task(started)
    assert (row.status, row.deaths, row.attempt) == ("pending", 1, 1)
    assert (row.cause, row.info, row.failures) == ("died", "its worker died", 0)
    assert [kept.cause for kept in world.attempts(started)] == ["died"]
    assert (world.task(bystander).deaths, world.task(bystander).attempt) == (0, 0)
    world.check_laws()


def test_a_task_that_kills_its_workers_is_quarantined(world: World) -> None:
    batch_id, (poison, bystander) = world.batch(2)
    for deaths in range(1, LIMITS.deaths_allowed + 1):
        assert world.task(poison).status == "pending"
        keeper = world.keeper()
        world.acquire(keeper)
        world.die(keeper)
        world.give_back(keeper, died=[poison])
        assert world.task(poison).deaths == deaths
    assert (world.task(poison).status, world.task(poison).cause) == ("fail", "quarantined")
    assert (world.task(bystander).status, world.task(bystander).deaths) == ("pending", 0)
    assert world.batch_row(batch_id).n_fail == 1
    world.check_laws()


def test_a_rollback_that_dies_stays_a_rollback_until_it_is_quarantined(world: World) -> None:
    _, (member,) = world.scene(["rollback_pending"], "rollback", captured=[0])
    for _ in range(LIMITS.deaths_allowed):
        assert world.task(member).status == "rollback_pending"
        keeper = world.keeper()
        world.acquire(keeper)
        world.die(keeper)
        world.give_back(keeper, died=[member])
    assert (world.task(member).status, world.task(member).cause) == (
        "rollback_fail",
        "quarantined",
    )
    world.check_laws()


@pytest.mark.parametrize(
    ("choice", "status"),
    [(OnDeath.RETRY, "pending"), (OnDeath.FAIL, "fail"), (OnDeath.CANCEL, "cancel")],
)
def test_the_handler_chooses_what_its_death_means(
    world: World, choice: OnDeath, status: str
) -> None:
    world.announce(HandlerSpec(SPEC.target_type, SPEC.type, on_death=choice))
    keeper = world.keeper()
    _, (started, waiting) = world.batch(2)
    world.acquire(keeper)
    world.die(keeper)
    world.give_back(keeper, died=[started])
    assert (world.task(started).status, world.task(started).cause) == (status, "died")
    # The choice is about what had started; the rest just waits again.
    assert world.task(waiting).status == "pending"
    world.check_laws()


def test_a_rollback_whose_handler_cancels_on_death_fails(world: World) -> None:
    world.announce(HandlerSpec(SPEC.target_type, SPEC.type, on_death=OnDeath.CANCEL))
    _, (member,) = world.scene(["rollback_pending"], "rollback", captured=[0])
    keeper = world.keeper()
    world.acquire(keeper)
    world.die(keeper)
    world.give_back(keeper, died=[member])
    assert world.task(member).status == "rollback_fail"
    world.check_laws()


def test_success_keeps_the_count_of_deaths_and_an_operators_retry_clears_it(world: World) -> None:
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    world.set_task(member, deaths=2)
    world.run(keeper, end=RunEnd.ERROR)
    assert world.task(member).deaths == 2
    world.database.write(lambda tx: store_tasks.retry(tx, member, REGION))
    assert world.task(member).deaths == 0


def test_what_an_operator_stopped_is_cancelled_and_not_given_back(world: World) -> None:
    keeper = world.keeper()
    cancelled, _ = world.batch(1)
    _, (asked, free) = world.batch(2)
    world.acquire(keeper)
    world.run_operation(cancelled, BatchOperation.CANCEL, Phase.CANCEL)
    world.database.write(lambda tx: store_tasks.cancel(tx, asked, REGION, force=True))
    world.die(keeper)
    world.give_back(keeper)
    assert world.statuses(cancelled) == ["cancel"]
    assert (world.task(asked).status, world.task(free).status) == ("cancel", "pending")
    world.check_laws()


def test_giving_back_twice_and_at_once_gives_back_once(world: World) -> None:
    for _ in range(3):
        keeper = world.keeper()
        _, members = world.batch(30)
        world.acquire(keeper, members)
        world.die(keeper)
        at_once(*[lambda k=keeper, m=members: world.give_back(k, died=m[:10])] * 3)
        assert [world.task(member).deaths for member in members] == [1] * 10 + [0] * 20
        assert {world.task(member).attempt for member in members[:10]} == {1}
        assert world.give_back(keeper) == []
        world.check_laws()


def test_a_give_back_whose_commit_was_lost_is_done_once(world: World) -> None:
    keeper = world.keeper()
    _, members = world.batch(3)
    world.acquire(keeper)
    world.die(keeper)
    with commit_of_unknown_fate(world.database):
        world.give_back(keeper, died=members)
    assert [world.task(member).deaths for member in members] == [1, 1, 1]
    assert [len(world.attempts(member)) for member in members] == [1, 1, 1]
    world.check_laws()


def test_only_some_can_be_given_back(world: World) -> None:
    keeper = world.keeper()
    _, members = world.batch(3)
    world.acquire(keeper)
    held_tasks.give_back(world.database, REGION, keeper, LIMITS, only=members[:1])
    assert [world.task(member).status for member in members] == ["pending", "running", "running"]
    world.check_laws()


def test_more_than_a_group_is_given_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_tasks, "GROUP", 4)
    keeper = world.keeper()
    batch_id, _ = world.batch(10)
    world.acquire(keeper)
    world.die(keeper)
    assert len(world.give_back(keeper)) == 10
    assert world.statuses(batch_id) == ["pending"] * 10
    world.check_laws()


# --- keepers -----------------------------------------------------------------------------------


def test_ended_keepers_that_still_own_tasks_are_found(world: World) -> None:
    alive, dead, gone, idle = (world.keeper(name) for name in ("alive", "dead", "gone", "idle"))
    _, members = world.batch(3)
    for keeper, member in zip((alive, dead, gone), members, strict=True):
        world.acquire(keeper, [member])
    world.die(dead)
    world.die(idle)
    world.database.write(lambda tx: keepers.close(tx, gone, KeeperState.GONE))
    found = world.database.read(lambda tx: keepers.read_ended_owners(tx, REGION))
    assert {row.id for row in found} == {dead, gone}
    for keeper in (dead, gone):
        world.give_back(keeper)
    assert world.database.read(lambda tx: keepers.read_ended_owners(tx, REGION)) == []


def test_a_dead_keeper_cannot_beat_and_never_comes_back(world: World) -> None:
    first = world.keeper()
    world.database.write(lambda tx: keepers.record_heartbeat(tx, first))
    world.die(first)
    with pytest.raises(KeeperDead, match=str(first)):
        world.database.write(lambda tx: keepers.record_heartbeat(tx, first))
    assert not world.database.write(lambda tx: keepers.close(tx, first, KeeperState.DEAD))
    assert not world.database.read(lambda tx: keepers.is_alive(tx, first))
    assert world.keeper() > first
    assert [row.state for row in world.rows(KeeperRow)] == ["dead", "alive"]


def test_keepers_of_other_nodes_are_counted_while_they_live(world: World) -> None:
    world.keeper(node="here")
    other = world.keeper(node="there")

    def others() -> int:
        return world.database.read(lambda tx: keepers.count_alive_elsewhere(tx, REGION, "here"))

    assert others() == 1
    world.die(other)
    assert others() == 0


def test_who_is_declared_dead_while_it_acquires_has_that_given_back_too(world: World) -> None:
    """The reaper's word and the keeper's acquire meet on the keeper's row."""
    for _ in range(5):
        keeper = world.keeper()
        _, members = world.batch(10)
        dues = world.dues(members)

        def take(keeper: int = keeper, dues: list[DueTask] = dues) -> None:
            with suppress(KeeperDead):
                runs.acquire(world.database, keeper, dues)

        def bury(keeper: int = keeper) -> None:
            world.die(keeper)
            world.give_back(keeper)

        at_once(take, bury)
        assert {world.task(member).owner for member in members} == {0}
        world.check_laws()


def test_a_run_ended_by_nobody_is_still_held(world: World) -> None:
    keeper = world.keeper()
    _, (member,) = world.batch(1)
    (due,) = world.acquire(keeper)
    held = world.database.read(lambda tx: held_tasks.read_held_tasks(tx, REGION, keeper))
    assert [(row.id, row.fence, row.status) for row in held] == [(member, due.fence, "running")]
    assert world.database.read(lambda tx: held_tasks.read_held_tasks(tx, "elsewhere", keeper)) == []
    world.release(keeper, [over(due)])
    assert world.database.read(lambda tx: held_tasks.read_held_tasks(tx, REGION, keeper)) == []
