"""The server halves of the commands, on every database: what they do, refuse, and do only once."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import func, select

from drumline import commands, processes
from drumline.commands import Context, why
from drumline.config import Settings
from drumline.control import new_request_id
from drumline.domain.policy import HandlerSpec
from drumline.domain.states import Phase, TaskState
from drumline.domain.task import Due
from drumline.domain.verdict import End
from drumline.errors import (
    Conflict,
    DrumlineError,
    NotFound,
    NotReachable,
    UnknownHandler,
    WrongUse,
)
from drumline.store import handlers, keepers, spreads
from drumline.store.database import Database
from drumline.store.tables import batch, pause, request, task
from tests.store.world import REGION, SPEC, Crash, World, at_once, crash_after, over

NODE = "node"
UNDOES = HandlerSpec("target", "undoes", captures=True, rolls_back=True)
STRICT = HandlerSpec(
    "target",
    "strict",
    schema={
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}},
        "required": ["n"],
    },
)


class Desk:
    """A door with all commands behind it, and a dispatcher that notes what it is asked."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.asked: list[tuple[str, str, int]] = []
        self.answers: dict[str, dict[str, Any]] = {
            "queue": {"length": 0, "capacity": 10, "pool_size": 1, "free_workers": 1},
            "workers": {"workers": []},
        }
        self.reachable = True
        self.rings = 0
        self.offered: list[Due] = []
        self.context = Context(
            Settings(region=REGION, node=NODE), database, self.ask, self.ring, actor="tester"
        )

    def ask(self, what: str, name: str = "", task_id: int = 0) -> dict[str, Any]:
        if not self.reachable:
            raise NotReachable(what="The dispatcher", reason="it does not answer")
        self.asked.append((what, name, task_id))
        return self.answers.get(what, {})

    def ring(self, dues: Sequence[Due] = ()) -> None:
        self.rings += 1
        self.offered += dues

    def __call__(
        self, command_name: str, request_id: str | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        command = commands.read(commands.by_name(command_name), arguments)
        answer = commands.carry_out(command, request_id or new_request_id(), self.context)
        msgspec.msgpack.encode(answer)  # it travels
        return answer

    def count(self, table: Any) -> int:
        return self.database.read(
            lambda tx: int(tx.execute(select(func.count()).select_from(table)).scalar_one())
        )


@pytest.fixture
def desk(world: World) -> Desk:
    world.announce(SPEC, UNDOES, STRICT)
    return Desk(world.database)


def submitted(desk: Desk, count: int = 3, **arguments: Any) -> int:
    about = {"batch_name": "june", "type": SPEC.type, "count": count} | arguments
    return int(desk("batch.submit", **about)["batch_id"])


def outcome(work: Callable[[], dict[str, Any]]) -> dict[str, Any] | DrumlineError:
    try:
        return work()
    except DrumlineError as error:
        return error


# --- submitting ----------------------------------------------------------------------------------


def test_a_submitted_batch_has_all_it_was_given_and_rings_the_scanner(
    desk: Desk, world: World
) -> None:
    about = {"env": "prod", "az": "a", "cmdb_service": "s", "creator": "me", "extra_info": {"x": 1}}
    targets = [{"target_id": "t1", "param": 1}, {"target_name": "two", "before_update": {"o": 1}}]
    answer = desk(
        "batch.submit",
        batch_name="june",
        type=SPEC.type,
        targets=targets,
        param={"common": True},
        priority=7,
        timeout=1.5,
        region=REGION,
        **about,
    )
    assert answer["tasks"] == 2
    assert desk.rings == 1
    found = desk("batch.show", batch_id=answer["batch_id"])
    assert found["status"] == "pending"
    assert found["counts"] == {"pending": 2}
    assert about.items() <= found.items()
    one, two = world.members(answer["batch_id"])
    first = desk("task.show", task_id=one)
    assert (first["param"], first["target_id"], first["priority"]) == (1, "t1", 7)
    assert (first["timeout"], first["env"]) == (1.5, "prod")
    second = desk("task.show", task_id=two)
    assert second["param"] == {"common": True}
    assert second["target_param"] == {"before_update": {"o": 1}, "after_update": None}
    world.check_laws()


def test_the_actor_is_the_creator_if_nobody_else_is_named(desk: Desk) -> None:
    assert desk("batch.show", batch_id=submitted(desk))["creator"] == "tester"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"type": "nobody.can"}, UnknownHandler, "nobody.can"),
        ({"target_type": "elsewhere"}, UnknownHandler, "elsewhere"),
        ({"count": 0}, WrongUse, "at least one target"),
        ({"targets": [{"target_id": "a"}]}, WrongUse, "a list of them, or a count"),
        ({"region": "mars"}, WrongUse, "'mars'"),
        ({"batch_name": ""}, WrongUse, "batch_name"),
        ({"priority": 10}, WrongUse, "priority"),
        ({"timeout": 0}, WrongUse, "timeout"),
        ({"timeout": float("nan")}, WrongUse, "timeout"),
        ({"timeout": 30 * 86400}, WrongUse, "timeout"),
        ({"param": "x" * (1024 * 1024)}, WrongUse, "bytes"),
        ({"count": 0, "targets": [{"target_id": 5}]}, WrongUse, "targets[0].target_id"),
        ({"count": 0, "targets": [{"name": "x"}]}, WrongUse, "name"),
        ({"surprise": 1}, WrongUse, "surprise"),
        ({"type": STRICT.type}, WrongUse, "param: must be of type object"),
        ({"type": STRICT.type, "param": {"n": 0}}, WrongUse, "param.n: must be >= 1"),
        (
            {"type": STRICT.type, "count": 0, "targets": [{"param": {"n": 1}}, {"param": {}}]},
            WrongUse,
            "target 1: param.n: is missing",
        ),
    ],
)
def test_a_wrong_submission_names_what_is_wrong_and_leaves_nothing(
    desk: Desk, arguments: dict[str, Any], error: type[DrumlineError], words: str
) -> None:
    with pytest.raises(error) as raised:
        submitted(desk, **arguments)
    assert words in str(raised.value)
    assert [desk.count(table) for table in (batch, task, request)] == [0, 0, 0]
    assert desk.rings == 0


def test_tasks_of_one_piece_are_spread_over_the_shards(desk: Desk, world: World) -> None:
    submitted(desk, count=200)
    assert len({row.shard for row in world.rows(task)}) == 64


# --- once ----------------------------------------------------------------------------------------


def test_a_request_sent_twice_is_done_once_and_answered_the_same(desk: Desk) -> None:
    arguments = {"batch_name": "june", "type": SPEC.type, "count": 3}
    first = desk("batch.submit", "r1", **arguments)
    assert desk("batch.submit", "r1", **arguments) == first
    assert desk.count(task) == 3
    assert desk.rings == 2  # the first ring may be what got lost


def test_a_request_sent_many_times_at_once_is_done_once(desk: Desk) -> None:
    arguments = {"batch_name": "june", "type": SPEC.type, "count": 3}
    answers = at_once(*[lambda: desk("batch.submit", "r1", **arguments)] * 6)
    assert answers == [answers[0]] * 6
    assert (desk.count(batch), desk.count(task)) == (1, 3)


def test_a_request_id_is_for_one_command(desk: Desk) -> None:
    desk("task.schedule", "r1", type=SPEC.type)
    with pytest.raises(Conflict, match="with other arguments"):
        desk("task.schedule", "r1", type=SPEC.type, priority=9)
    assert desk.count(task) == 1
    with pytest.raises(Conflict, match=r"task\.schedule"):
        desk("queue.pause", "r1")


def test_a_refused_request_may_be_repeated_and_then_be_done(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    with pytest.raises(Conflict):
        desk("batch.retry", "r1", batch_id=batch_id)
    world.run(world.keeper(), end=End.ERROR)
    assert desk("batch.retry", "r1", batch_id=batch_id)["retried"] == 3


@pytest.mark.parametrize("request_id", ["", "x" * 65])
def test_a_request_id_that_cannot_be_kept_is_refused(desk: Desk, request_id: str) -> None:
    command = commands.read(commands.by_name("queue.pause"), {})
    with pytest.raises(WrongUse, match="request id"):
        commands.carry_out(command, request_id, desk.context)


# --- in pieces -----------------------------------------------------------------------------------


def loading(desk: Desk, count: int = 3) -> int:
    batch_id = int(desk("batch.open", batch_name="june", type=SPEC.type)["batch_id"])
    desk("batch.load", batch_id=batch_id, count=count)
    return batch_id


def test_nothing_of_a_batch_can_start_before_all_of_it_is_there(desk: Desk, world: World) -> None:
    batch_id = loading(desk)
    assert world.dues() == []
    assert desk("batch.show", batch_id=batch_id)["status"] == "loading"
    desk("batch.load", batch_id=batch_id, targets=[{"target_id": "a"}])
    assert desk.rings == 0
    assert desk("batch.start", batch_id=batch_id)["tasks"] == 4
    assert desk.rings == 1
    assert len(world.dues()) == 4
    world.check_laws()


def test_a_piece_sent_twice_is_loaded_once(desk: Desk, world: World) -> None:
    batch_id = loading(desk)
    for _ in range(2):
        desk("batch.load", "piece 2", batch_id=batch_id, count=2)
    assert desk("batch.start", batch_id=batch_id)["tasks"] == 5
    world.check_laws()


def test_a_batch_that_has_started_takes_no_more(desk: Desk) -> None:
    batch_id = loading(desk)
    desk("batch.start", batch_id=batch_id)
    for command, arguments in (
        ("batch.start", {}),
        ("batch.load", {"count": 1}),
        ("batch.discard", {}),
    ):
        with pytest.raises(Conflict, match="not being loaded"):
            desk(command, batch_id=batch_id, **arguments)
    assert desk.count(task) == 3


def test_an_empty_batch_cannot_start(desk: Desk) -> None:
    batch_id = desk("batch.open", batch_name="june", type=SPEC.type)["batch_id"]
    with pytest.raises(WrongUse, match="at least one"):
        desk("batch.start", batch_id=batch_id)


def test_a_discarded_load_leaves_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreads, "CHUNK", 2)
    kept = submitted(desk, count=1)
    batch_id = loading(desk, count=5)
    for _ in range(2):
        assert desk("batch.discard", "r1", batch_id=batch_id)["discarded"] == 5
    with pytest.raises(NotFound):
        desk("batch.show", batch_id=batch_id)
    assert desk.count(task) == 1
    assert desk("batch.show", batch_id=kept)["total"] == 1


def test_a_discard_that_died_half_way_is_finished_by_whoever_finds_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreads, "CHUNK", 2)
    batch_id = loading(desk, count=5)
    with crash_after(desk.database, commits=2), pytest.raises(Crash):
        desk("batch.discard", batch_id=batch_id)
    assert desk.count(task) == 3
    with pytest.raises(Conflict, match="not being loaded"):
        desk("batch.load", batch_id=batch_id, count=1)
    spreads.carry_out(desk.database, batch_id)
    assert (desk.count(task), desk.count(batch)) == (0, 0)


# --- cancelling ----------------------------------------------------------------------------------


def test_cancel_takes_what_waits_at_once_and_what_runs_at_its_end(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    keeper = world.keeper()
    (due,) = world.acquire(keeper, world.members(batch_id)[:1])
    answer = desk("batch.cancel", batch_id=batch_id)
    assert (answer["cancelled"], answer["running"]) == (2, 1)
    assert world.statuses(batch_id) == ["running", "cancel", "cancel"]
    assert not desk("batch.show", batch_id=batch_id)["finished"]
    assert desk.asked == []
    world.release(keeper, [over(due)])
    assert world.statuses(batch_id) == ["cancel"] * 3
    assert desk("batch.show", batch_id=batch_id)["finished"]
    world.check_laws()


def test_cancel_by_force_has_what_runs_killed(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    keeper = world.keeper()
    world.acquire(keeper, world.members(batch_id)[:2])
    assert desk("batch.cancel", batch_id=batch_id, force=True)["killing"] == 2
    assert sorted(desk.asked) == [("kill", "", i) for i in world.members(batch_id)[:2]]
    assert [row.stop for row in world.rows(task)] == [2, 2, 0]


def test_force_may_follow_a_cancel_that_was_too_polite(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    world.acquire(world.keeper(), world.members(batch_id)[:1])
    desk("batch.cancel", batch_id=batch_id)
    with pytest.raises(Conflict, match="1 of its tasks still run"):
        desk("batch.cancel", batch_id=batch_id)
    desk("batch.cancel", batch_id=batch_id, force=True)
    assert world.rows(task)[0].stop == 2


def test_a_kill_without_a_dispatcher_is_left_to_the_keepers(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    world.acquire(world.keeper(), world.members(batch_id)[:1])
    desk.reachable = False
    desk("batch.cancel", batch_id=batch_id, force=True)
    assert world.rows(task)[0].stop == 2


def test_what_is_over_cannot_be_cancelled(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    world.run(world.keeper())
    with pytest.raises(Conflict, match="already finished: success"):
        desk("batch.cancel", batch_id=batch_id)
    other = submitted(desk)
    desk("batch.cancel", batch_id=other)
    with pytest.raises(Conflict, match="already cancelled"):
        desk("batch.cancel", batch_id=other, force=True)


def test_cancel_stops_a_load(desk: Desk, world: World) -> None:
    batch_id = loading(desk)
    desk("batch.cancel", batch_id=batch_id)
    assert world.statuses(batch_id) == ["cancel"] * 3
    with pytest.raises(Conflict, match="not being loaded"):
        desk("batch.load", batch_id=batch_id, count=1)
    assert desk("batch.show", batch_id=batch_id)["finished"]
    world.check_laws()


def test_cancel_wins_over_a_start_that_is_under_way(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreads, "CHUNK", 2)
    batch_id = loading(desk, count=5)
    with crash_after(desk.database, commits=2), pytest.raises(Crash):
        desk("batch.start", batch_id=batch_id)
    assert len(world.dues()) == 2
    desk("batch.cancel", batch_id=batch_id)
    assert world.statuses(batch_id) == ["cancel"] * 5
    assert world.dues() == []
    world.check_laws()


# --- retrying ------------------------------------------------------------------------------------


def test_retry_runs_all_that_failed_again(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    keeper = world.keeper()
    world.run(keeper, world.members(batch_id)[:1])
    world.run(keeper, end=End.ERROR)
    assert desk("batch.retry", batch_id=batch_id)["retried"] == 2
    assert world.statuses(batch_id) == ["success", "retry_pending", "retry_pending"]
    world.run(keeper)
    assert desk("batch.show", batch_id=batch_id)["status"] == "success"
    world.check_laws()


def test_retry_of_some_leaves_the_others_and_is_all_or_nothing(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    one, two, three = world.members(batch_id)
    keeper = world.keeper()
    world.run(keeper, [one])
    world.run(keeper, end=End.ERROR)
    with pytest.raises(Conflict, match=f"task {one} is success"):
        desk("batch.retry", batch_id=batch_id, task_ids=[two, one])
    assert world.statuses(batch_id) == ["success", "fail", "fail"]
    assert desk("batch.retry", batch_id=batch_id, task_ids=[three, three])["retried"] == 1
    assert world.statuses(batch_id) == ["success", "fail", "retry_pending"]
    world.check_laws()


def test_retry_of_another_batchs_task_is_not_found(desk: Desk, world: World) -> None:
    batch_id, other = submitted(desk), submitted(desk)
    world.run(world.keeper(), end=End.ERROR)
    foreign = world.members(other)[0]
    with pytest.raises(NotFound, match=f"task {foreign} in batch {batch_id}"):
        desk("batch.retry", batch_id=batch_id, task_ids=[foreign])


@pytest.mark.parametrize(
    ("statuses", "phase", "words"),
    [
        (["success"], Phase.FORWARD, "no failed task"),
        (["fail", "cancel"], Phase.CANCEL, "is cancelled"),
        (["fail", "rollback_success"], Phase.ROLLBACK, "no failed task"),
        (["pending"], Phase.LOADING, "being loaded"),
    ],
)
def test_a_retry_that_makes_no_sense_is_refused(
    desk: Desk, world: World, statuses: list[str], phase: str, words: str
) -> None:
    batch_id, _ = world.scene(statuses, phase)
    with pytest.raises(Conflict, match=words):
        desk("batch.retry", batch_id=batch_id)
    assert world.statuses(batch_id) == statuses


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("fail", Phase.CANCEL),
        ("fail", Phase.ROLLBACK),
        ("rollback_fail", Phase.CANCEL),
    ],
)
def test_a_task_that_its_batch_would_never_let_start_is_not_retried(
    desk: Desk, world: World, status: str, phase: str
) -> None:
    batch_id, (only,) = world.scene([status], phase, captured=[0])
    for command, arguments in (
        ("task.retry", {"task_id": only}),
        ("batch.retry", {"batch_id": batch_id, "task_ids": [only]}),
    ):
        with pytest.raises(Conflict, match="cannot be retried"):
            desk(command, **arguments)
    assert world.statuses(batch_id) == [status]


# --- rolling back --------------------------------------------------------------------------------


def undoable(desk: Desk, count: int = 3) -> int:
    targets = [{"before_update": {"was": i}} for i in range(count)]
    return submitted(desk, count=0, type=UNDOES.type, targets=targets)


def test_a_rollback_runs_the_last_first_and_ends_in_success(desk: Desk, world: World) -> None:
    batch_id = undoable(desk)
    members = world.members(batch_id)
    keeper = world.keeper()
    for one in members:
        world.run(keeper, [one])
    assert desk("batch.rollback", batch_id=batch_id)["status"] == "rollback_running"
    assert [due.id for due in world.dues()] == members[::-1]
    assert desk("batch.show", batch_id=batch_id)["status"] == "rollback_running"
    world.run(keeper)
    assert desk("batch.show", batch_id=batch_id)["status"] == "rollback_success"
    world.check_laws()


def test_rollback_is_refused_while_anything_runs(desk: Desk, world: World) -> None:
    batch_id = undoable(desk)
    keeper = world.keeper()
    (due,) = world.acquire(keeper, world.members(batch_id)[:1])
    with pytest.raises(Conflict, match="1 task of batch"):
        desk("batch.rollback", batch_id=batch_id)
    world.release(keeper, [over(due)])
    desk("batch.rollback", batch_id=batch_id)
    assert set(world.statuses(batch_id)) == {"rollback_pending"}
    world.check_laws()


def test_a_run_and_a_rollback_that_begin_at_once_exclude_each_other(
    desk: Desk, world: World
) -> None:
    for _ in range(10):
        batch_id = undoable(desk, count=1)
        keeper, dues = world.keeper(), world.members(batch_id)
        rolled: list[dict[str, Any] | DrumlineError] = []
        won: list[Due] = []
        roll_back = partial(desk, "batch.rollback", batch_id=batch_id)
        at_once(
            partial(lambda to, work: to.append(outcome(work)), rolled, roll_back),
            partial(lambda to, *who: to.extend(world.acquire(*who)), won, keeper, dues),
        )
        forward = [due for due in won if due.status is TaskState.PENDING]
        assert isinstance(rolled[0], Conflict) == bool(forward), (rolled, won)
        world.check_laws()
        world.set_task(dues[0], status="cancel", owner=None, finished_at=1)
        world.set_batch(
            batch_id, n_pending=0, n_running=0, n_rollback_pending=0, n_rollback_running=0,
            n_cancel=1, phase="cancel",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("statuses", "phase", "words"),
    [
        (["waiting_callback", "success"], Phase.FORWARD, "still running"),
        (["pending"], Phase.LOADING, "being loaded"),
        (["rollback_pending"], Phase.ROLLBACK, "already in its rollback: rollback_running"),
        (["rollback_success"], Phase.ROLLBACK, "already in its rollback: rollback_success"),
        (["rollback_fail"], Phase.ROLLBACK, "`batch retry`"),
    ],
)
def test_a_rollback_that_makes_no_sense_is_refused(
    desk: Desk, world: World, statuses: list[str], phase: str, words: str
) -> None:
    batch_id, _ = world.scene(statuses, phase, captured=[0])
    world.set_batch(batch_id, batch_type=UNDOES.type)
    with pytest.raises(Conflict, match=words):
        desk("batch.rollback", batch_id=batch_id)
    assert world.statuses(batch_id) == statuses


def test_a_handler_that_cannot_roll_back_is_named(desk: Desk, world: World) -> None:
    batch_id, _ = world.batch(1, captured=[0])
    world.run(world.keeper())
    with pytest.raises(Conflict, match="has no rollback"):
        desk("batch.rollback", batch_id=batch_id)


def test_a_batch_that_captured_nothing_has_nothing_to_roll_back(desk: Desk, world: World) -> None:
    batch_id = submitted(desk, type=UNDOES.type)
    world.run(world.keeper())
    with pytest.raises(Conflict, match="before_update"):
        desk("batch.rollback", batch_id=batch_id)


def test_a_rollback_can_be_cancelled_and_begun_again(desk: Desk, world: World) -> None:
    batch_id = undoable(desk)
    one, two, _ = world.members(batch_id)
    keeper = world.keeper()
    world.run(keeper)
    desk("batch.rollback", batch_id=batch_id)
    world.run(keeper, [one])
    world.run(keeper, [two], end=End.ERROR)
    desk("batch.cancel", batch_id=batch_id)
    assert world.statuses(batch_id) == ["rollback_success", "rollback_fail", "cancel"]
    desk("batch.rollback", batch_id=batch_id)
    assert world.statuses(batch_id) == ["rollback_success", "rollback_pending", "rollback_pending"]
    world.run(keeper)
    assert desk("batch.show", batch_id=batch_id)["status"] == "rollback_success"
    world.check_laws()


def test_retry_in_a_rollback_rolls_back_again(desk: Desk, world: World) -> None:
    batch_id = undoable(desk)
    keeper = world.keeper()
    world.run(keeper)
    desk("batch.rollback", batch_id=batch_id)
    world.run(keeper, end=End.ERROR)
    assert desk("batch.show", batch_id=batch_id)["status"] == "rollback_fail"
    assert desk("batch.retry", batch_id=batch_id)["retried"] == 3
    assert set(world.statuses(batch_id)) == {"rollback_pending"}
    world.check_laws()


# --- single tasks --------------------------------------------------------------------------------


def test_an_instance_id_is_unique_while_its_task_is_unfinished(desk: Desk, world: World) -> None:
    first = desk("task.schedule", type=SPEC.type, instance_id="a")["task_id"]
    with pytest.raises(Conflict, match=f"task {first}"):
        desk("task.schedule", type=SPEC.type, instance_id="a")
    desk("task.schedule", type=SPEC.type, instance_id="b")
    desk("task.schedule", type=UNDOES.type, instance_id="a")
    world.run(world.keeper(), end=End.ERROR)
    second = desk("task.schedule", type=SPEC.type, instance_id="a")["task_id"]
    with pytest.raises(Conflict, match=f"task {second}"):
        desk("task.retry", task_id=first)
    world.check_laws()


def test_of_many_with_one_instance_id_at_once_one_is_scheduled(desk: Desk) -> None:
    results = at_once(
        *[lambda: outcome(lambda: desk("task.schedule", type=SPEC.type, instance_id="a"))] * 6
    )
    done = [one["task_id"] for one in results if isinstance(one, dict)]
    refused = [one for one in results if not isinstance(one, dict)]
    assert len(done) == 1
    assert [str(one) for one in refused] == [
        f"type with instance id 'a' is already scheduled as task {done[0]}"
    ] * 5
    assert {type(one) for one in refused} == {Conflict}


@pytest.mark.parametrize(
    ("at", "iso"),
    [
        ("2030-01-31T12:00:00Z", "2030-01-31T12:00:00.000000Z"),
        ("2030-01-31T12:00:00.25+02:00", "2030-01-31T10:00:00.250000Z"),
        ("1893456000", "2030-01-01T00:00:00.000000Z"),
        ("1893456000.5", "2030-01-01T00:00:00.500000Z"),
    ],
)
def test_a_task_is_scheduled_at_the_time_that_was_written(desk: Desk, at: str, iso: str) -> None:
    answer = desk("task.schedule", type=SPEC.type, at=at)
    assert answer["due_at"] == iso
    assert desk("task.show", task_id=answer["task_id"])["due_at"] == iso


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"at": "2030-01-31T12:00:00"}, "time zone"),
        ({"at": "tomorrow"}, "'tomorrow'"),
        ({"at": "1e300"}, "1e300"),
        ({"at": "nan"}, "nan"),
        ({"at": "-1"}, "-1"),
        ({"at": "1893456000000"}, "9999"),
        ({"delay": -1}, "delay"),
        ({"at": "0", "delay": 1}, "not both"),
        ({"instance_id": ""}, "instance_id"),
        ({"instance_id": "x" * 127}, "instance_id"),
        ({"type": STRICT.type, "param": {"n": "one"}}, "param.n"),
    ],
)
def test_a_task_that_cannot_be_meant_is_refused(
    desk: Desk, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(WrongUse) as raised:
        desk("task.schedule", **{"type": SPEC.type} | arguments)
    assert words in str(raised.value)
    assert desk.count(task) == 0


def test_a_waiting_task_moves_in_time_and_in_line(desk: Desk, world: World) -> None:
    first = desk("task.schedule", type=SPEC.type)["task_id"]
    second = desk("task.schedule", type=SPEC.type)["task_id"]
    held = world.dues([first])
    desk("task.reschedule", task_id=second, priority=9)
    assert [due.id for due in world.dues()] == [second, first]
    answer = desk("task.reschedule", task_id=first, at="2030-01-01T00:00:00Z")
    assert answer == {
        "task_id": first,
        "due_at": "2030-01-01T00:00:00.000000Z",
        "priority": 5,
    }
    # What the dispatcher still holds of it is stale, and no keeper gets it by that.
    from drumline.store import runs

    assert runs.acquire(desk.database, world.keeper(), held) == []
    world.check_laws()


def test_what_runs_or_is_over_is_not_moved(desk: Desk, world: World) -> None:
    task_id = desk("task.schedule", type=SPEC.type)["task_id"]
    keeper = world.keeper()
    (due,) = world.acquire(keeper)
    with pytest.raises(Conflict, match="is running"):
        desk("task.reschedule", task_id=task_id, delay=5)
    world.release(keeper, [over(due)])
    with pytest.raises(Conflict, match="is success"):
        desk("task.reschedule", task_id=task_id, delay=5)
    with pytest.raises(WrongUse, match="nothing to change"):
        desk("task.reschedule", task_id=task_id)


def test_a_task_is_cancelled_at_once_at_its_end_or_by_force(desk: Desk, world: World) -> None:
    waiting = desk("task.schedule", type=SPEC.type, instance_id="a")["task_id"]
    assert desk("task.cancel", task_id=waiting)["state"] == "cancel"
    with pytest.raises(Conflict, match="already cancel"):
        desk("task.cancel", task_id=waiting)
    desk("task.schedule", type=SPEC.type, instance_id="a")
    keeper = world.keeper()
    (due,) = world.acquire(keeper)
    assert desk("task.cancel", task_id=due.id)["state"] == "stopping"
    assert desk.asked == []
    assert desk("task.show", task_id=due.id)["stop_asked"] == "cancel"
    assert desk("task.cancel", task_id=due.id, force=True)["state"] == "killing"
    assert desk.asked == [("kill", "", due.id)]
    world.release(keeper, [over(due)])
    assert world.task_status(due.id) == "cancel"
    world.check_laws()


def test_a_failed_task_shows_its_attempts_and_runs_again(desk: Desk, world: World) -> None:
    task_id = desk("task.schedule", type=SPEC.type)["task_id"]
    world.run(world.keeper(), end=End.ERROR)
    found = desk("task.show", task_id=task_id)
    assert (found["status"], found["cause"], found["attempt"]) == ("fail", "error", 1)
    assert [one["info"] for one in found["attempts"]] == ["it was: error"]
    assert desk("task.retry", task_id=task_id)["status"] == "retry_pending"
    world.run(world.keeper())
    assert desk("task.show", task_id=task_id)["status"] == "success"
    with pytest.raises(Conflict, match="only failed"):
        desk("task.retry", task_id=task_id)


def test_a_running_task_shows_who_has_it(desk: Desk, world: World) -> None:
    task_id = desk("task.schedule", type=SPEC.type)["task_id"]
    keeper = world.keeper(name="worker-7")
    (due,) = world.acquire(keeper)
    found = desk("task.show", task_id=task_id)
    assert (found["owner"], found["keeper"], found["fence"]) == ("worker-7", keeper, due.fence)
    assert found["last_heartbeat"] is not None
    assert found["why"] is None


def test_lists_come_in_pages_newest_first(desk: Desk, world: World) -> None:
    batch_id = submitted(desk, count=5)
    other = desk("task.schedule", type=UNDOES.type)["task_id"]
    world.run(world.keeper(), world.members(batch_id)[:2], end=End.ERROR)
    seen: list[int] = []
    before = None
    while True:
        page = desk("task.list", limit=2, **({"before": before} if before else {}))
        seen += [one["id"] for one in page["tasks"]]
        before = page["next"]
        if before is None:
            break
    assert seen == [other, *world.members(batch_id)[::-1]]
    failed = desk("task.list", status=["fail"], batch_id=batch_id)["tasks"]
    assert [one["id"] for one in failed] == world.members(batch_id)[1::-1]
    assert [one["id"] for one in desk("task.list", type=UNDOES.type)["tasks"]] == [other]
    newest = submitted(desk)
    page = desk("batch.list", limit=1)
    assert [one["id"] for one in page["batches"]] == [newest]
    assert [one["id"] for one in desk("batch.list", before=page["next"])["batches"]] == [batch_id]


def test_another_regions_work_is_not_found(desk: Desk, world: World) -> None:
    batch_id = submitted(desk)
    world.set_batch(batch_id, region="elsewhere")
    (one, *_) = world.members(batch_id)
    world.set_task(one, region="elsewhere")
    for command in ("batch.show", "batch.cancel", "batch.retry", "batch.rollback"):
        with pytest.raises(NotFound, match=f"no batch {batch_id}"):
            desk(command, batch_id=batch_id)
    for command in ("task.show", "task.cancel", "task.retry"):
        with pytest.raises(NotFound, match=f"no task {one}"):
            desk(command, task_id=one)


# --- why -----------------------------------------------------------------------------------------


def whys(desk: Desk, task_id: int) -> str:
    return str(desk("task.show", task_id=task_id)["why"])


def test_why_a_task_waits(desk: Desk, world: World) -> None:
    batch_id = loading(desk)
    assert "still being loaded" in whys(desk, world.members(batch_id)[0])
    later = desk("task.schedule", type=SPEC.type, delay=60)["task_id"]
    assert "due in" in whys(desk, later)
    first = desk("task.schedule", type=SPEC.type)["task_id"]
    second = desk("task.schedule", type=SPEC.type)["task_id"]
    assert whys(desk, first).startswith("it is next; 1 of 1 workers are free")
    assert whys(desk, second).startswith("1 are ahead of it")
    desk("task.reschedule", task_id=second, priority=6)
    assert whys(desk, first).startswith("1 are ahead of it")
    desk.answers["queue"]["free_workers"] = 0
    assert whys(desk, second) == "it is next; all 1 workers are busy"
    desk.answers["queue"]["length"] = 10
    assert whys(desk, second).startswith("the queue is full")
    desk.answers["workers"] = {"workers": [{"name": "worker-7", "tasks": [second]}]}
    assert whys(desk, second).startswith("worker-7 has it")
    desk.answers["queue"]["pool_size"] = 0
    assert whys(desk, second) == "there is no worker"
    desk.reachable = False
    assert "dispatcher does not answer" in whys(desk, second)
    desk("queue.pause", type=SPEC.type)
    assert f"queue resume {SPEC.type}`" in whys(desk, second)
    desk("queue.pause")
    assert "everything is paused" in whys(desk, second)


def test_why_nobody_can_run_it(desk: Desk, world: World) -> None:
    task_id = world.one_shot(type="gone", target_type="target")
    assert "no worker has ever announced" in whys(desk, task_id)


def test_a_crowd_ahead_is_not_counted_to_its_end(desk: Desk, monkeypatch: Any) -> None:
    monkeypatch.setattr(why, "FAR", 3)
    submitted(desk, count=5, priority=8)
    task_id = desk("task.schedule", type=SPEC.type)["task_id"]
    assert whys(desk, task_id).startswith("more than 3 are ahead of it")


# --- the queue, the workers, the handlers --------------------------------------------------------


def test_a_pause_stays_until_it_is_undone(desk: Desk) -> None:
    assert desk("queue.pause", type=SPEC.type) == {"paused": [SPEC.type]}
    assert desk("queue.pause", type=SPEC.type) == {"paused": [SPEC.type]}
    assert desk("queue.pause") == {"paused": ["*", SPEC.type]}
    assert desk("queue.show")["paused"] == ["*", SPEC.type]
    assert desk("queue.resume") == {"paused": [SPEC.type]}
    with pytest.raises(Conflict, match="as a whole is not paused; paused: type"):
        desk("queue.resume")
    assert desk("queue.resume", type=SPEC.type) == {"paused": []}
    assert desk.rings == 5


def test_a_type_that_nobody_has_cannot_be_paused(desk: Desk) -> None:
    with pytest.raises(UnknownHandler, match="typo"):
        desk("queue.pause", type="typo")


def test_two_who_pause_at_once_agree(desk: Desk) -> None:
    answers = at_once(*[lambda: desk("queue.pause", type=SPEC.type)] * 6)
    assert answers == [{"paused": [SPEC.type]}] * 6
    assert desk.count(pause) == 1


def test_workers_are_listed_with_what_the_dispatcher_knows(desk: Desk, world: World) -> None:
    here, there = world.keeper("worker-1"), world.keeper("worker-1", node="far")
    gone = world.keeper("worker-2")
    world.die(gone)
    desk.answers["workers"] = {
        "workers": [{"keeper": here, "name": "worker-1", "state": "busy", "holds": 2, "tasks": [7]}]
    }
    found = desk("worker.list")["workers"]
    assert [(one["keeper"], one["node"], one["state"], one["holds"]) for one in found] == [
        (there, "far", "alive", None),
        (here, NODE, "busy", 2),
    ]
    desk.reachable = False
    assert {one["state"] for one in desk("worker.list")["workers"]} == {"alive"}


def test_a_worker_is_drained_and_not_the_one_that_comes_after_it(desk: Desk, world: World) -> None:
    first = world.keeper("worker-1")
    desk.answers["workers"] = {"workers": [{"keeper": first, "name": "worker-1"}]}
    desk("worker.drain", "r1", worker="worker-1")
    assert ("drain", "worker-1", 0) in desk.asked
    desk.asked.clear()
    desk.answers["workers"] = {"workers": [{"keeper": first + 1, "name": "worker-1"}]}
    desk("worker.drain", "r1", worker="worker-1")
    assert desk.asked == [("workers", "", 0)]


def test_a_worker_elsewhere_or_nowhere_is_refused(desk: Desk, world: World) -> None:
    world.keeper("worker-1", node="far")
    for command in ("worker.drain", "worker.kill"):
        with pytest.raises(Conflict, match="on node far"):
            desk(command, worker="worker-1")
        with pytest.raises(NotFound, match="worker-9"):
            desk(command, worker="worker-9")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:  # noqa: S607
        yield process
        process.kill()


def test_a_kill_ends_the_very_process_that_was_meant(
    desk: Desk, sleeper: subprocess.Popen[bytes]
) -> None:
    born = processes.started(sleeper.pid)
    assert born is not None

    def register(pid_started: int) -> None:
        desk.database.write(
            lambda tx: keepers.register(
                tx, name="w", region=REGION, node=NODE, pid=sleeper.pid, pid_started=pid_started
            )
        )

    register(born + 1)  # the pid has come to another process since
    desk("worker.kill", worker="w")
    assert sleeper.poll() is None
    register(born)
    assert desk("worker.kill", worker="w")["pid"] == sleeper.pid
    assert sleeper.wait(5) == -9


def test_handlers_are_shown_as_they_were_announced(desk: Desk, world: World) -> None:
    listed = desk("handlers.list")["handlers"]
    assert [one["type"] for one in listed] == ["strict", "type", "undoes"]
    found = desk("handlers.show", type="undoes")
    assert (found["captures"], found["rolls_back"], found["timeout"]) == (True, True, 20.0)
    assert desk("handlers.show", type="strict")["schema"] == STRICT.schema
    with pytest.raises(NotFound, match="handler for nothing"):
        desk("handlers.show", type="nothing")
    world.announce(HandlerSpec("other", "undoes"))
    with pytest.raises(WrongUse, match="other, target"):
        desk("handlers.show", type="undoes")
    assert desk("handlers.show", type="undoes", target_type="other")["rolls_back"] is False
    assert len(desk.database.read(lambda tx: handlers.known(tx, REGION))) == 4
