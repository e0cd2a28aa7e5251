"""Sweeps in the store: checkpoints, ends, states and who may move them, on every database."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Row, insert, update

from drumline.domain.alarms import Event
from drumline.domain.part import HookEnd, Line, PartEnd
from drumline.domain.policy import HandlerSpec, SweepTraits
from drumline.domain.sweep import HOOKS, PARTS, Actor, SweepState
from drumline.domain.verdict import End, Outcome
from drumline.errors import Conflict, DrumlineError, NotFound, WrongUse
from drumline.store import runs, sweep_log, sweep_parts, sweeps
from drumline.store.database import Database
from drumline.store.sweep_parts import Checkpoint, Demand, Held
from drumline.store.tables import alarm, sweep_failed, sweep_part, task
from drumline.store.tables import sweep as sweep_table
from drumline.store.tables import sweep_log as log_table
from drumline.store.tx import Tx
from tests.store.desk import Desk
from tests.store.world import REGION, SPEC, World, at_once, commit_of_unknown_fate

PLAIN = HandlerSpec(PARTS, "plain", sweep=SweepTraits())
LOOPS = HandlerSpec(PARTS, "loops", sweep=SweepTraits(is_async=True))
HOOKED = HandlerSpec(PARTS, "hooked", sweep=SweepTraits(creates=True, prepares=True))
PREPARED = HandlerSpec(PARTS, "prepared", sweep=SweepTraits(prepares=True))


class SweepWorld(World):
    def show(self, name: str | int) -> Row[Any]:
        return self.database.read(lambda tx: sweeps.get(tx, REGION, name))

    def parts(self, name: str | int) -> list[Row[Any]]:
        sweep_id = self.show(name).id
        return self.database.read(lambda tx: sweeps.parts_of(tx, [sweep_id]))[sweep_id]

    def hold(self, name: str, number: int = 0, keeper_id: int | None = None) -> Held:
        """Acquire a partition's task and open it."""
        keeper_id = keeper_id or self.keeper()
        task_id = self.parts(name)[number].task_id
        (due,) = self.acquire(keeper_id, [task_id])
        held = Held(keeper_id, due.id, due.fence)
        assert sweep_parts.open_part(self.database, held) is not None
        return held

    def flush(self, held: Held, start: int, errors: int = 0, **more: Any) -> Any:
        return sweep_parts.checkpoint(self.database, held, Checkpoint(start, errors, **more))

    def end(self, held: Held, end: End = End.SUCCESS, result: Any = None, **more: Any) -> None:
        """The run of a task of a sweep is over."""
        row = self.task(held.task_id)
        text = None if result is None else msgspec.json.encode(result).decode()
        spec = HandlerSpec(row.target_type, row.type)
        ended = runs.ended_row(row, Outcome(end, result=text, **more), {spec.key: spec}, "worker")
        assert self.release(held.keeper_id, [ended]) == []

    def hook(self, name: str, result: HookEnd | None, **more: Any) -> None:
        """Run the hook that a sweep waits for."""
        keeper_id, task_id = self.keeper(), self.show(name).hook_task_id
        (due,) = self.acquire(keeper_id, [task_id])
        end = End.ERROR if result is None else End.SUCCESS
        self.end(Held(keeper_id, due.id, due.fence), end, result, **more)


@pytest.fixture
def world(database: Database) -> SweepWorld:
    world = SweepWorld(database)
    world.announce(PLAIN, LOOPS, HOOKED, PREPARED, SPEC)
    return world


@pytest.fixture
def desk(world: SweepWorld) -> Desk:
    return Desk(world.database)


def begin(desk: Desk, name: str = "s", **fields: Any) -> int:
    about = {"type": "plain", "total": 100, "start": True, **fields}
    return int(desk("sweep.create", name=name, **about)["id"])


# --- create --------------------------------------------------------------------------------------


def test_a_sweep_is_created_and_shown_by_name_and_id(desk: Desk) -> None:
    made = desk(
        "sweep.create", name="june", type="plain", total=10**10, rate=5.5, parallel=4, errors=7,
        partitions=2, extra={"a": [1]},
    )  # fmt: skip
    assert made == {k: v for k, v in desk("sweep.show", sweep="june").items() if k != "parts"}
    assert made == {k: v for k, v in desk("sweep.show", sweep=made["id"]).items() if k != "parts"}
    wanted = {
        "state": "created", "total": 10**10, "done": 0, "errors": 0, "rate": 5.5, "parallel": 4,
        "error_budget": 7, "partitions": 2, "extra": {"a": [1]}, "creator": "tester",
        "reason": None, "checked": True, "finished": False, "version": 1,
    }  # fmt: skip
    assert wanted.items() <= made.items()
    assert [one["name"] for one in desk("sweep.list")["sweeps"]] == ["june"]
    assert desk("sweep.list", state="running")["sweeps"] == []
    with pytest.raises(Conflict, match="already a sweep called 'june'"):
        begin(desk, "june")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "12"}, "name: '12' would be taken for an id"),
        ({"name": ""}, "name"),
        ({"total": 0}, "total: must be from 1"),
        ({"total": None}, "total: give either a total or items"),
        ({"items": "x"}, "total: give either a total or items"),
        ({"total": None, "items": []}, "total: give either"),
        ({"total": None, "items": ["a\nb"]}, "items: item 1 has a line break"),
        ({"total": None, "items": ["x" * 2_000_000]}, "items: a list of"),
        ({"rate": 0}, "rate"),
        ({"rate": -1.0}, "rate"),
        ({"parallel": 0}, "parallel"),
        ({"parallel": 257}, "parallel: plain is not async"),
        ({"errors": -1}, "errors"),
        ({"partitions": 101}, "partitions: 101 are more than the 100 items"),
        ({"partitions": 5, "parallel": 4}, "parallel: 4 is less than the 5 partitions"),
        ({"type": "nobody"}, "no runner handles sweeps of type 'nobody'. Known: hooked, loops"),
        ({"type": SPEC.type}, "no runner handles sweeps"),
        ({"extra": "x" * 70_000}, "extra: 70002 bytes"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_sweep_is_refused_by_its_field(desk: Desk, fields: Any, says: str) -> None:
    about = {"name": "s", "type": "plain", "total": 100} | fields
    with pytest.raises(WrongUse) as refused:
        desk("sweep.create", **{k: v for k, v in about.items() if v is not None})
    assert says in str(refused.value)
    assert desk.count(sweep_table) == 0


def test_an_async_handler_may_run_thousands_at_a_time(desk: Desk) -> None:
    begin(desk, type="loops", total=10**6, parallel=5000)


def test_a_type_of_sweeps_is_not_for_tasks(desk: Desk) -> None:
    with pytest.raises(WrongUse, match="handles sweeps: use `drumline sweep create`"):
        desk("task.schedule", type="plain")
    shown = {one["type"]: one["target_type"] for one in desk("handlers.list")["handlers"]}
    assert shown["plain"] == PARTS and HOOKS not in shown.values()


# --- checkpoints ---------------------------------------------------------------------------------


def test_a_checkpoint_moves_forward_and_answers_with_what_is_live(
    desk: Desk, world: SweepWorld
) -> None:
    begin(desk, partitions=2, rate=10.0, parallel=3, errors=5)
    first, second = world.hold("s", 0), world.hold("s", 1)
    live = world.flush(first, 20, 2, failed=(3, 7), speed=4.0)
    assert (live.stop, live.rate, live.parallel, live.serial) == (False, 5.0, 1, False)
    assert (live.budget, live.at_start, live.others) == (5, 0, 0)
    live = world.flush(second, 60, 1, failed=(55,))
    assert (live.parallel, live.others) == (2, 2)
    shown = desk("sweep.show", sweep="s")
    assert (shown["done"], shown["errors"], shown["running"]) == (30, 3, 2)
    assert [one["index"] for one in desk("sweep.failed", sweep="s")["failed"]] == [3, 7, 55]
    assert desk("sweep.failed", sweep="s", after=3, limit=1)["next"] == 7
    desk("sweep.update", sweep="s", rate=100.0, parallel=8)
    live = world.flush(first, 20, 2)
    assert (live.rate, live.parallel) == (50.0, 4)


def test_the_start_never_moves_back_and_a_repeated_checkpoint_changes_nothing(
    desk: Desk, world: SweepWorld
) -> None:
    begin(desk)
    held = world.hold("s")
    with commit_of_unknown_fate(world.database):
        world.flush(held, 50, 1, failed=(10,))
    world.flush(held, 40, 0, failed=())
    world.flush(held, 60, 2, failed=(10, 55))
    (part,) = world.parts("s")
    assert (part.start_index, part.errors, part.failed_kept) == (60, 2, 2)
    assert [row.item for row in world.rows(sweep_failed)] == [10, 55]


def test_who_has_lost_the_fence_stores_nothing(desk: Desk, world: SweepWorld) -> None:
    begin(desk)
    held = world.hold("s")
    world.flush(held, 10)
    world.die(held.keeper_id)
    world.give_back(held.keeper_id, died=[held.task_id])
    assert world.flush(held, 20) is None
    later = world.hold("s")
    assert world.flush(held, 20) is None
    assert sweep_parts.open_part(world.database, held) is None
    assert world.parts("s")[0].start_index == 10
    assert world.flush(later, 15) is not None


def test_progress_clears_deaths_and_none_brings_quarantine(desk: Desk, world: SweepWorld) -> None:
    begin(desk)
    start = 0
    for _ in range(5):
        held = world.hold("s")
        start += 5
        world.flush(held, start)
        world.die(held.keeper_id)
        world.give_back(held.keeper_id, died=[held.task_id])
        assert world.task(held.task_id).deaths == 1
    for deaths in (2, 3):
        assert world.show("s").state == "running"
        held = world.hold("s")
        world.flush(held, start)
        world.die(held.keeper_id)
        world.give_back(held.keeper_id, died=[held.task_id])
        assert world.task(held.task_id).deaths == deaths
    stopped = world.show("s")
    assert stopped.state == "stopped"
    assert "partition 0 at index 25" in stopped.reason and "quarantined" in stopped.reason
    desk("sweep.start", sweep="s")
    assert world.task(world.parts("s")[0].task_id).deaths == 0


def test_log_lines_and_extra_data_come_with_the_checkpoint(desk: Desk, world: SweepWorld) -> None:
    begin(desk, extra={"n": 0})
    held = world.hold("s")
    world.flush(held, 3, log=(Line(1, "one"), Line(2, "two 🥁")), extra='{"n": 1}')
    assert desk("sweep.show", sweep="s")["extra"] == {"n": 1}
    lines = desk("sweep.log", sweep="s")["lines"]
    assert [(line["index"], line["message"]) for line in lines] == [(2, "two 🥁"), (1, "one")]
    assert desk("sweep.log", sweep="s", index=1)["lines"] == lines[1:]
    assert desk("sweep.log", sweep="s", before=lines[0]["id"])["lines"] == lines[1:]


def test_items_that_were_stuck_are_remembered_until_they_are_passed(
    desk: Desk, world: SweepWorld
) -> None:
    begin(desk)
    held = world.hold("s")
    world.flush(held, 5, stuck=(7, 9))
    world.end(held, End.GIVEN_BACK)
    held = world.hold("s")
    part = sweep_parts.open_part(world.database, held)
    assert part is not None and (part.start, part.stuck) == (5, (7, 9))
    world.flush(held, 8)
    part = sweep_parts.open_part(world.database, held)
    assert part is not None and part.stuck == (9,)


def test_the_list_of_failed_indexes_is_bounded(
    desk: Desk, world: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_parts, "FAILED_KEPT", 5)
    begin(desk)
    held = world.hold("s")
    world.flush(held, 4, 4, failed=(0, 1, 2, 3))
    world.flush(held, 8, 8, failed=(4, 5, 6, 7))
    world.flush(held, 9, 9, failed=(8,))
    assert [row.item for row in world.rows(sweep_failed)] == [0, 1, 2, 3, 4]
    assert world.parts("s")[0].errors == 9


# --- ends ----------------------------------------------------------------------------------------


def test_it_is_finished_when_its_last_partition_is(desk: Desk, world: SweepWorld) -> None:
    begin(desk, partitions=2)
    first, second = world.hold("s", 0), world.hold("s", 1)
    world.flush(first, 50)
    world.end(first, result=PartEnd(50, 0, True))
    assert world.show("s").state == "running"
    assert [part.running for part in world.parts("s")] == [False, True]
    world.flush(second, 100)
    world.end(second, result=PartEnd(100, 0, True))
    row = world.show("s")
    assert (row.state, row.reason) == ("finished", None) and row.finished_at is not None
    for command in ("sweep.start", "sweep.stop"):
        with pytest.raises(Conflict, match="The sweep is finished"):
            desk(command, sweep="s")


def test_a_partition_that_stops_takes_the_others_along(desk: Desk, world: SweepWorld) -> None:
    begin(desk, partitions=3, parallel=3)
    first, second = world.hold("s", 0), world.hold("s", 1)
    world.flush(first, 10, 5)
    world.end(first, result=PartEnd(10, 5, False, "the error budget of 5 is spent"))
    assert world.show("s").state == "stopping"
    assert world.parts("s")[2].task_id is None, "what waited will not start"
    live = world.flush(second, 40)
    assert live.stop
    world.end(second, End.GIVEN_BACK, PartEnd(40, 0, False))
    row = world.show("s")
    assert (row.state, row.reason) == ("stopped", "the error budget of 5 is spent")
    assert world.task(second.task_id).status == "cancel"
    desk("sweep.start", sweep="s")
    row = world.show("s")
    assert (row.state, row.reason, row.errors_at_start) == ("running", None, 5)
    assert [part.start_index for part in world.parts("s")] == [10, 40, 66]


def test_a_partition_that_drains_goes_on_elsewhere(desk: Desk, world: SweepWorld) -> None:
    begin(desk)
    held = world.hold("s")
    world.flush(held, 30)
    world.end(held, End.GIVEN_BACK, PartEnd(30, 0, False))
    row, (part,) = world.show("s"), world.parts("s")
    assert (row.state, part.running, part.task_id) == ("running", False, held.task_id)
    again = sweep_parts.open_part(world.database, world.hold("s"))
    assert again is not None and again.start == 30


def test_a_part_that_is_done_when_it_is_stopped_is_done(desk: Desk, world: SweepWorld) -> None:
    begin(desk)
    held = world.hold("s")
    desk("sweep.stop", sweep="s")
    world.flush(held, 100)
    world.end(held, result=PartEnd(100, 0, True))
    assert world.show("s").state == "finished"


def test_a_sweep_that_is_stopped_alarms(
    desk: Desk, world: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.database, "_hooks", {Event.SWEEP_STOPPED: ("ops",)})
    begin(desk)
    held = world.hold("s")
    world.end(held, End.ERROR, info="items: the source has changed")
    (row,) = world.rows(alarm)
    assert msgspec.json.decode(row.body)["data"] == {
        "sweep_id": world.show("s").id,
        "name": "s",
        "reason": "partition 0 at index 0: its task failed: items: the source has changed",
    }


# --- operators -----------------------------------------------------------------------------------


def test_stops_and_starts_that_do_not_fit_are_refused(desk: Desk, world: SweepWorld) -> None:
    begin(desk, start=False)
    with pytest.raises(Conflict, match="is created: an operator may stop it only from waiting or"):
        desk("sweep.stop", sweep="s")
    with pytest.raises(Conflict, match="is created: the handler may start it only from waiting"):
        desk("sweep.ready", sweep="s")
    desk("sweep.start", sweep="s")
    with pytest.raises(Conflict, match="is running: an operator may start it only from created or"):
        desk("sweep.start", sweep="s")
    assert desk("sweep.stop", sweep="s", reason="a pause")["state"] == "stopped", "nothing ran"
    assert desk("sweep.stop", sweep="s")["reason"] == "stopped by tester: a pause", "twice is fine"
    desk("sweep.start", sweep="s")
    held = world.hold("s")
    assert desk("sweep.stop", sweep="s")["state"] == "stopping"
    with pytest.raises(Conflict, match="is stopping"):
        desk("sweep.start", sweep="s")
    assert desk("sweep.stop", sweep="s", force=True)["state"] == "stopping"
    assert world.task(held.task_id).stop == runs.STOP_KILL
    assert ("kill", "", held.task_id) in desk.asked
    world.end(held, End.KILLED)
    assert world.show("s").state == "stopped"
    for key in ("nothing", 999):
        with pytest.raises(NotFound, match="no sweep"):
            desk("sweep.start", sweep=key)


def test_a_move_from_what_is_no_longer_so_is_not_made(desk: Desk, world: SweepWorld) -> None:
    begin(desk, start=False)
    stale = world.show("s")
    desk("sweep.update", sweep="s", rate=3)
    with pytest.raises(runs.Raced):
        world.database.write(lambda tx: sweeps.move(tx, stale, SweepState.RUNNING, Actor.OPERATOR))
    assert world.show("s").state == "created"


def test_tasks_of_a_sweep_are_its_own(desk: Desk, world: SweepWorld) -> None:
    begin(desk)
    task_id = world.parts("s")[0].task_id
    for command in ("task.cancel", "task.retry", "task.reschedule"):
        more = {"priority": 3} if command == "task.reschedule" else {}
        with pytest.raises(Conflict, match=r"belongs to sweep \d+: use `drumline sweep`"):
            desk(command, task_id=task_id, **more)


def test_a_part_that_waits_for_its_turn_says_so(desk: Desk, world: SweepWorld) -> None:
    begin(desk)
    desk.answers["queue"] |= {"sweeps": 3, "sweep_cap": 3}
    why = desk("task.show", task_id=world.parts("s")[0].task_id)["why"]
    assert why == "this node runs 3 sweeps already, and 3 are its share"


def test_of_many_operators_at_once_one_has_its_way(desk: Desk, world: SweepWorld) -> None:
    begin(desk, start=False, partitions=3)

    def ask(command: str) -> Callable[[], str]:
        def call() -> str:
            try:
                return str(Desk(world.database)(command, sweep="s")["state"])
            except DrumlineError as error:
                return str(error)

        return call

    started = at_once(*[ask("sweep.start")] * 4)
    assert started.count("running") == 1
    assert sum("The sweep is running" in word for word in started) == 3
    assert desk.count(task) == 3
    held = world.hold("s")
    assert set(at_once(*[ask("sweep.stop")] * 4)) == {"stopping"}
    world.end(held, End.GIVEN_BACK)
    assert world.show("s").state == "stopped"


def test_a_change_is_checked_as_a_creation_is(desk: Desk, world: SweepWorld) -> None:
    begin(desk, partitions=2, parallel=4)
    for fields, says in (
        ({"rate": 0}, "rate"),
        ({"parallel": 1}, "parallel: 1 is less than the 2"),
        ({"parallel": 1000}, "parallel"),
        ({"errors": -1}, "errors"),
        ({"unset": ["name"]}, "'name' cannot be unset"),
        ({}, "nothing to change"),
    ):
        with pytest.raises(WrongUse, match=says):
            desk("sweep.update", sweep="s", **fields)
    with pytest.raises(Conflict, match="extra data is its handler's"):
        desk("sweep.update", sweep="s", extra=1)
    version = desk("sweep.show", sweep="s")["version"]
    assert desk("sweep.update", sweep="s", rate=3, version=version)["rate"] == 3.0
    with pytest.raises(Conflict, match="read it again"):
        desk("sweep.update", sweep="s", rate=4, version=version)
    assert desk("sweep.update", sweep="s", unset=["rate"])["rate"] is None
    desk("sweep.stop", sweep="s")
    assert desk("sweep.update", sweep="s", extra=[1])["extra"] == [1]


def test_a_part_of_a_sweep_runs_again_as_another(desk: Desk, world: SweepWorld) -> None:
    first = begin(desk, rate=7.0, errors=3, extra="x", partitions=2)
    made = desk("sweep.rerun", sweep="s", first=10, end=20)
    assert (made["name"], made["state"], made["rerun_of"]) == ("s-rerun-1", "running", first)
    assert (made["total"], made["first"], made["end"], made["rate"]) == (10, 10, 20, 7.0)
    spans = [(part.first_index, part.end_index) for part in world.parts("s-rerun-1")]
    assert spans == [(10, 15), (15, 20)]
    assert desk("sweep.rerun", sweep="s", start=False)["name"] == "s-rerun-2"
    for span in ((20, 10), (0, 101), (100, None), (5, 5)):
        with pytest.raises(WrongUse, match="is not a part of 0 to 100"):
            fields = {"first": span[0], "end": span[1]}
            desk("sweep.rerun", sweep="s", **{k: v for k, v in fields.items() if v is not None})
    with pytest.raises(WrongUse, match="cannot be cut into 11 parts"):
        desk("sweep.rerun", sweep="s", first=10, end=20, partitions=11)


# --- hooks ---------------------------------------------------------------------------------------


def test_a_create_hook_agrees_or_refuses_for_good(desk: Desk, world: SweepWorld) -> None:
    begin(desk, "good", type="hooked", start=True)
    assert world.show("good").state == "created", "it is not started before its hook agrees"
    with pytest.raises(Conflict, match="has not agreed yet"):
        desk("sweep.start", sweep="good")
    world.hook("good", HookEnd())
    assert desk("sweep.start", sweep="good")["state"] == "waiting"
    for name, end, says in (
        ("bad", HookEnd(refused="not this one"), "not this one"),
        ("broken", None, "its create hook broke: its task failed: no such table"),
    ):
        begin(desk, name, type="hooked")
        world.hook(name, end, info="no such table")
        row = world.show(name)
        assert (row.state, row.reason, row.hook_task_id) == ("failed", says, None)
        with pytest.raises(Conflict, match="The sweep is failed"):
            desk("sweep.start", sweep=name)


def test_a_prepare_hook_lets_it_start_or_wait_or_stop(desk: Desk, world: SweepWorld) -> None:
    begin(desk, "a", type="prepared")
    assert world.show("a").state == "waiting"
    with pytest.raises(Conflict, match="prepare hook of sweep"):
        desk("sweep.ready", sweep="a")
    world.hook("a", HookEnd(later=60.0, extra='"half"'))
    row = world.show("a")
    due = world.task(row.hook_task_id).due_at - row.updated_at
    assert (row.state, row.extra, due) == ("waiting", '"half"', 60_000_000)
    world.set_task(row.hook_task_id, due_at=0)
    world.hook("a", HookEnd(waits=True))
    assert (world.show("a").state, world.show("a").hook_task_id) == ("waiting", None)
    assert desk("sweep.ready", sweep="a")["state"] == "running"
    begin(desk, "b", type="prepared")
    world.hook("b", None, info="the service is away")
    row = world.show("b")
    assert row.state == "stopped" and "the service is away" in row.reason
    desk("sweep.start", sweep="b")
    world.hook("b", HookEnd())
    assert world.show("b").state == "running", "a start that failed can be repeated"
    begin(desk, "c", type="prepared")
    world.hook("c", HookEnd(refused="never"))
    assert (world.show("c").state, world.show("c").reason) == ("failed", "never")


def test_a_stop_reaches_a_hook_wherever_it_is(desk: Desk, world: SweepWorld) -> None:
    begin(desk, "waits", type="prepared")
    assert desk("sweep.stop", sweep="waits")["state"] == "stopped"
    begin(desk, "idle", type="prepared")
    world.hook("idle", HookEnd(waits=True))
    assert desk("sweep.stop", sweep="idle")["state"] == "stopped"
    with pytest.raises(Conflict, match="handler may start it only from waiting"):
        desk("sweep.ready", sweep="idle")
    begin(desk, "runs", type="prepared")
    keeper_id, task_id = world.keeper(), world.show("runs").hook_task_id
    (due,) = world.acquire(keeper_id, [task_id])
    assert desk("sweep.stop", sweep="runs")["state"] == "stopping"
    assert world.task(task_id).stop == runs.STOP_KILL
    world.end(Held(keeper_id, due.id, due.fence), End.SUCCESS, HookEnd())
    assert world.show("runs").state == "stopped", "not once a stop is asked"


def test_a_source_is_counted_before_it_is_cut(desk: Desk, world: SweepWorld) -> None:
    begin(desk, total=None, items="/some/file", partitions=8)
    row = world.show("s")
    assert (row.state, row.total, world.parts("s")) == ("waiting", None, [])
    with pytest.raises(Conflict, match="its items are not counted"):
        desk("sweep.rerun", sweep="s")
    world.hook("s", HookEnd(total=5, identity="file 1"))
    row = world.show("s")
    assert (row.state, row.total, row.end_index, row.identity) == ("running", 5, 5, "file 1")
    assert len(world.parts("s")) == 5, "no more partitions than items"
    part = sweep_parts.open_part(world.database, world.hold("s", 4))
    assert part is not None and part.source is not None
    assert (part.source.items, part.source.total, part.source.identity) == (
        "/some/file", 5, "file 1",
    )  # fmt: skip
    changed = begin(desk, "changing", type="prepared", total=None, items=["a", "b"])
    world.hook("changing", HookEnd(total=2, identity="x"))
    desk("sweep.stop", sweep=changed)
    desk("sweep.start", sweep=changed)
    world.hook("changing", HookEnd(total=2, identity="y"))
    row = world.show("changing")
    assert row.state == "stopped" and "the source has changed" in row.reason


# --- upkeep --------------------------------------------------------------------------------------


def test_a_nodes_share_is_reckoned_from_what_runs_and_who_lives(
    desk: Desk, world: SweepWorld
) -> None:
    def demand(node: str) -> Demand:
        return world.database.read(lambda tx: sweep_parts.demand(tx, REGION, node))

    assert demand("one") == Demand()
    begin(desk, partitions=5, parallel=5)
    one, other = world.keeper("w1", "one"), world.keeper("w2", "two")
    world.hold("s", 0, one)
    world.hold("s", 1, one)
    assert demand("one") == Demand(5, 2, 2)
    assert demand("two") == Demand(5, 2, 0)
    world.die(other)
    assert demand("two").nodes == 1


def test_what_ended_long_ago_is_let_go_and_nothing_else(
    desk: Desk, world: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_log, "CHUNK", 2)
    for name in ("old", "new", "stopped"):
        begin(desk, name, total=3)
        held = world.hold(name)
        log = tuple(Line(n, "line") for n in range(3))
        world.flush(held, 2 if name == "stopped" else 3, 2, failed=(0, 1), log=log)
        end = PartEnd(2, 2, False, "enough") if name == "stopped" else PartEnd(3, 2, True)
        world.end(held, result=end)

    def age(tx: Tx) -> None:
        change = update(sweep_table).where(sweep_table.c.name.in_(["old", "stopped"]))
        tx.execute(change.values(finished_at=1, updated_at=1))

    world.database.write(age)
    while world.database.write(lambda tx: sweep_log.prune_sweeps(tx, REGION, 1000)):
        pass
    assert [row.name for row in world.rows(sweep_table)] == ["new", "stopped"]
    assert (len(world.rows(log_table)), len(world.rows(sweep_failed))) == (6, 4)
    assert len(world.rows(sweep_part)) == 2


def test_only_the_newest_lines_are_kept(
    desk: Desk, world: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_log, "LINES_KEPT", 5)
    monkeypatch.setattr(sweep_log, "CHUNK", 4)
    sweep_id = begin(desk)
    rows = [{"sweep_id": sweep_id, "item": n, "message": "m", "created_at": 1} for n in range(20)]
    world.database.write(lambda tx: tx.execute(insert(log_table), rows))
    while world.database.write(lambda tx: sweep_log.prune_lines(tx, REGION)):
        pass
    assert [row.item for row in world.rows(log_table)] == list(range(15, 20))


# --- any order -----------------------------------------------------------------------------------

MOVES = st.lists(
    st.sampled_from(["start", "stop", "force", "hold", "flush", "end", "short", "die", "drain"]),
    max_size=30,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(moves=MOVES)
def test_no_order_of_events_breaks_the_laws(
    world: SweepWorld, desk: Desk, moves: list[str]
) -> None:
    world.database.write(lambda tx: [tx.execute(t.delete()) for t in (sweep_part, sweep_table)])
    begin(desk, partitions=2, parallel=2, start=False)
    held: list[Held] = []
    starts = [0, 50]
    for move in moves:
        _move(world, desk, move, held)
        row, parts = world.show("s"), world.parts("s")
        if parts:
            now = [part.start_index for part in parts]
            assert all(a >= b for a, b in zip(now, starts, strict=True)), "never back"
            starts = now
        under_way = [part for part in parts if part.task_id is not None]
        assert (row.state in ("running", "stopping")) == bool(under_way)
        for part in under_way:
            assert world.task(part.task_id).status in ("pending", "running")
        done = bool(parts) and all(part.start_index == part.end_index for part in parts)
        assert (row.state == "finished") == (done and not under_way)
    assert world.check_laws() is not None
    assert SweepState(row.state if moves else "created")


def _move(world: SweepWorld, desk: Desk, move: str, held: list[Held]) -> None:
    match move:
        case "start" | "stop" | "force":
            command = "sweep.start" if move == "start" else "sweep.stop"
            more = {"force": True} if move == "force" else {}
            with suppress(Conflict):
                desk(command, sweep="s", **more)
        case "hold":
            for part in world.parts("s"):
                if part.task_id and world.task(part.task_id).status == "pending":
                    held.append(world.hold("s", part.number))
                    return
        case "flush" if held:
            part = next(p for p in world.parts("s") if p.task_id == held[0].task_id)
            world.flush(held[0], min(part.end_index, part.start_index + 30))
        case "end" if held:
            one = held.pop(0)
            part = next(p for p in world.parts("s") if p.task_id == one.task_id)
            world.flush(one, part.end_index)
            world.end(one, result=PartEnd(part.end_index, 0, True))
        case "short" if held:
            world.end(held.pop(0), result=PartEnd(0, 1, False, "a reason", by_handler=True))
        case "die" if held:
            one = held.pop(0)
            world.die(one.keeper_id)
            world.give_back(one.keeper_id, died=[one.task_id])
        case "drain" if held:
            world.end(held.pop(0), End.GIVEN_BACK, PartEnd(0, 0, False))
