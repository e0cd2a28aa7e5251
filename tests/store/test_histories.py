"""Histories: keepers, operators, a reaper and an upkeep act in any order, and the laws hold.

Every step is one thing that somebody does, often with what they knew a while ago. After each one
every task has made a legal move or none, the counters are what a recount finds, and no task is in
the hands of two who live. At the end whatever can still run is run, and everything comes to rest.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from drumline.domain.policy import HandlerSpec, OnDeath, Retry
from drumline.domain.release import RunEnd
from drumline.domain.states import FINISHED, HELD, TRANSITIONS, BatchOperation, Phase, TaskState
from drumline.domain.task import DueTask
from drumline.errors import Conflict, NotFound
from drumline.store.batch import batches, operations
from drumline.store.batch.batches import PhaseChanged
from drumline.store.batch.operations import QUIET
from drumline.store.database import Database
from drumline.store.node.keepers import KeeperDead
from drumline.store.rows import BatchRow, TaskRow
from drumline.store.task import held_tasks, runs
from drumline.store.task import tasks as store_tasks
from tests.store.conftest import wipe
from tests.store.world import (
    REGION,
    SPEC,
    Crash,
    World,
    commit_of_unknown_fate,
    crash_after,
    over,
)

HANDLER = HandlerSpec(SPEC.target_type, SPEC.type, retry=Retry(retries=1, delay=0.0, jitter=0.0))
ENDS = [end for end in RunEnd if end is not RunEnd.WAITING]

pick = st.integers(0, 1_000)
"""Chooses one of whatever there is at that moment."""
some = st.sets(st.integers(0, 5))


class Histories(RuleBasedStateMachine):
    """Who is there, what each believes, and what may be done next."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.world = World(database)
        wipe(database)
        self.alive: list[int] = []
        self.dead: list[int] = []
        self.holds: dict[int, dict[int, DueTask]] = {}
        """What each keeper believes that it holds. A dead one may still believe it."""
        self.batches: list[int] = []
        self.scanned: list[DueTask] = []
        self.seen: dict[int, TaskRow] = {}
        self.past: list[DueTask] = []
        """Every run there ever was: a message about any of them may still come."""

    # --- helpers -------------------------------------------------------------------------------

    def one(self, choices: Sequence[int], number: int) -> int:
        return choices[number % len(choices)]

    def tried(self, work: Callable[[], object]) -> None:
        """What is refused with a clear error has changed nothing: the invariants look."""
        with suppress(Conflict, NotFound, PhaseChanged):
            work()

    # --- those who submit ----------------------------------------------------------------------

    @initialize()
    def handlers(self) -> None:
        self.world.announce(
            HandlerSpec(SPEC.target_type, SPEC.type),
            HandlerSpec(SPEC.target_type, "frail", on_death=OnDeath.FAIL),
        )
        self.keeper_starts()
        self.keeper_starts()
        self.submit(3, {0, 2}, opened=True, frail=False)
        self.scan()

    @rule(size=st.integers(1, 5), captured=some, opened=st.booleans(), frail=st.booleans())
    def submit(self, size: int, captured: set[int], opened: bool, frail: bool) -> None:
        batch_id, _ = self.world.batch(
            size,
            captured=captured,
            opened=opened,
            batch_type="frail" if frail else SPEC.type,
            priority=4 + size % 3,
        )
        self.batches.append(batch_id)

    @rule()
    def schedule(self) -> None:
        self.world.one_shot()

    @precondition(lambda self: self.batches)
    @rule(number=pick)
    def open(self, number: int) -> None:
        row = self.world.batch_row(self.one(self.batches, number))
        self.world.database.write(lambda tx: operations.open_batch(tx, row, unowned=True))

    # --- keepers -------------------------------------------------------------------------------

    @rule()
    def keeper_starts(self) -> None:
        keeper = self.world.keeper()
        self.alive.append(keeper)
        self.holds[keeper] = {}

    @rule()
    def scan(self) -> None:
        self.scanned = self.world.dues()

    @precondition(lambda self: self.alive and self.scanned)
    @rule(number=pick, start=pick, size=st.integers(1, 4), lost=st.booleans(), again=st.booleans())
    def acquire(self, number: int, start: int, size: int, lost: bool, again: bool) -> None:
        """By what the last scan saw, however long ago that was."""
        if again:
            self.scanned = self.world.dues() or self.scanned
        keeper = self.one(self.alive, number)
        first = start % len(self.scanned)
        some = self.scanned[first : first + size]
        dues = [due for due in some if due.id not in self.holds[keeper]]
        phases = {row.id: row.phase for row in self.world.rows(BatchRow)}
        database = self.world.database
        with commit_of_unknown_fate(database, surely=False) if lost else nullcontext():
            won = runs.acquire(database, keeper, dues)
        for due in won:
            others = [k for k in self.alive if k != keeper and due.id in self.holds[k]]
            assert not others, f"task {due.id} has two live owners: {keeper} and {others}"
            if due.batch_id is not None:
                rolling = due.status is TaskState.ROLLBACK_PENDING
                assert phases[due.batch_id] == ("rollback" if rolling else "forward")
            self.holds[keeper][due.id] = due
            self.past.append(due)

    @precondition(lambda self: self.past)
    @rule(number=pick, other=pick, end=st.sampled_from(ENDS), ours=st.booleans())
    def write_out_of_turn(self, number: int, other: int, end: RunEnd, ours: bool) -> None:
        """A run that is over, or another's: whoever writes it changes nothing."""
        held = {row.id: row.owner for row in self.seen.values() if row.status in HELD}
        # Of tasks that run, if there are any: that is where a missing fence would do harm.
        past = [due for due in self.past if due.id in held] or self.past
        due = past[number % len(past)]
        writer = self.one(sorted(self.holds), other)
        if ours and due.id in held:
            writer = held[due.id]
        before = self.world.task(due.id)
        if (before.owner, before.fence) == (writer, due.fence):
            return  # it is in turn
        self.world.release(writer, [over(due, end, handler=HANDLER)])
        assert not runs.capture(self.world.database, writer, due.id, due.fence, "0", "0")
        assert self.world.task(due.id) == before

    @precondition(lambda self: any(self.holds.values()))
    @rule(
        number=pick,
        ends=st.lists(st.sampled_from(ENDS), min_size=6, max_size=6),
        which=st.sets(st.integers(0, 5), min_size=1),
        lost=st.booleans(),
    )
    def release(self, number: int, ends: list[RunEnd], which: set[int], lost: bool) -> None:
        """Also by a keeper that is dead and does not know it yet."""
        keeper = self.one([k for k, held in self.holds.items() if held], number)
        held = list(self.holds[keeper].values())
        chosen = [(due, ends[n]) for n, due in enumerate(held[:6]) if n in which]
        ended = [over(due, end, handler=HANDLER) for due, end in chosen]
        owned = {
            due.id
            for due, _ in chosen
            if (row := self.world.task(due.id)).owner == keeper and row.fence == due.fence
        }
        database = self.world.database
        lose = lost and owned
        with commit_of_unknown_fate(database) if lose else nullcontext():
            said = self.world.release(keeper, ended)
        if keeper in self.alive:
            assert said == []
        elif not lose:
            assert set(said) == {due.id for due, _ in chosen} - owned
        for due, _ in chosen:
            del self.holds[keeper][due.id]

    @precondition(lambda self: any(self.holds.values()))
    @rule(number=pick)
    def capture(self, number: int) -> None:
        keeper = self.one([k for k, held in self.holds.items() if held], number)
        for due in self.holds[keeper].values():
            row = self.world.task(due.id)
            ours = row.owner == keeper and row.fence == due.fence
            before = f'"seen by {keeper}"'
            done = runs.capture(self.world.database, keeper, due.id, due.fence, before, "1")
            assert done is ours
            after = self.world.task(due.id).before_update
            assert after == (row.before_update or (before if ours else None))

    # --- the reaper ----------------------------------------------------------------------------

    @precondition(lambda self: self.alive)
    @rule(number=pick)
    def declare_dead(self, number: int) -> None:
        keeper = self.one(self.alive, number)
        self.world.die(keeper)
        self.alive.remove(keeper)
        self.dead.append(keeper)

    @precondition(lambda self: self.dead)
    @rule(number=pick, started=st.integers(0, 2))
    def give_back(self, number: int, started: int) -> None:
        keeper = self.one(self.dead, number)
        charged = sorted(self.holds[keeper])[:started]
        self.world.give_back(keeper, died=charged)
        held = self.world.database.read(lambda tx: held_tasks.read_held_tasks(tx, REGION, keeper))
        assert held == []

    @precondition(lambda self: self.dead)
    @rule(number=pick)
    def a_dead_one_acquires(self, number: int) -> None:
        dues = self.world.dues()
        if dues:
            with suppress(KeeperDead):
                runs.acquire(self.world.database, self.one(self.dead, number), dues)
                raise AssertionError("a dead keeper acquired tasks")

    # --- operators -----------------------------------------------------------------------------

    @precondition(lambda self: self.batches)
    @rule(number=pick, operation=st.sampled_from([BatchOperation.CANCEL, BatchOperation.KILL]))
    def cancel_batch(self, number: int, operation: BatchOperation) -> None:
        self.world.begin(self.one(self.batches, number), operation, Phase.CANCEL)

    @precondition(lambda self: self.batches)
    @rule(number=pick)
    def retry_batch(self, number: int) -> None:
        row = self.world.batch_row(self.one(self.batches, number))
        if row.operation is None and row.phase in ("forward", "rollback"):
            self.world.begin(row.id, BatchOperation.RETRY, row.phase)

    @precondition(lambda self: self.batches)
    @rule(number=pick)
    def roll_back(self, number: int) -> None:
        row = self.world.batch_row(self.one(self.batches, number))
        if row.operation is None and row.phase in ("forward", "cancel"):
            self.world.database.write(
                lambda tx: operations.begin_operation(
                    tx, row, BatchOperation.ROLLBACK, Phase.ROLLBACK, *QUIET
                )
            )

    @precondition(lambda self: self.batches)
    @rule(number=pick, chunks=st.integers(0, 3))
    def carry_out(self, number: int, chunks: int) -> None:
        """By one who may die on the way."""
        batch_id = self.one(self.batches, number)
        with suppress(Crash), crash_after(self.world.database, chunks):
            operations.run_operation(self.world.database, batch_id)

    @precondition(lambda self: self.seen)
    @rule(number=pick, force=st.booleans())
    def cancel_task(self, number: int, force: bool) -> None:
        task_id = self.one(sorted(self.seen), number)
        self.tried(
            lambda: self.world.database.write(
                lambda tx: store_tasks.cancel(tx, task_id, REGION, force)
            )
        )

    @precondition(lambda self: self.seen)
    @rule(number=pick)
    def retry_task(self, number: int) -> None:
        task_id = self.one(sorted(self.seen), number)
        self.tried(
            lambda: self.world.database.write(lambda tx: store_tasks.retry(tx, task_id, REGION))
        )

    @precondition(lambda self: self.seen)
    @rule(number=pick, priority=st.integers(0, 9))
    def reschedule(self, number: int, priority: int) -> None:
        task_id = self.one(sorted(self.seen), number)
        self.tried(
            lambda: self.world.database.write(
                lambda tx: store_tasks.reschedule(tx, task_id, REGION, 17, priority)
            )
        )

    # --- upkeep --------------------------------------------------------------------------------

    @precondition(lambda self: self.batches)
    @rule(number=pick)
    def upkeep(self, number: int) -> None:
        self.world.upkeep(self.one(self.batches, number))

    @precondition(lambda self: self.batches)
    @rule(number=pick)
    def recount(self, number: int) -> None:
        """Finds what was there: the laws are looked at afterwards."""
        batch_id = self.one(self.batches, number)
        before = batches.counts(self.world.batch_row(batch_id))
        assert self.world.database.write(lambda tx: batches.recount(tx, batch_id)) == before

    # --- the laws ------------------------------------------------------------------------------

    @invariant()
    def the_laws_hold_and_every_move_is_in_the_table(self) -> None:
        now = {row.id: row for row in self.world.check_laws()}
        for task_id, row in now.items():
            before = self.seen.get(task_id)
            if before is None:
                continue
            source, target = before.status, row.status
            legal = source is target or target in TRANSITIONS[source]
            assert legal, f"task {task_id} went from {source} to {target}"
            assert (row.version, row.fence) >= (before.version, before.fence)
            if (row.status, row.owner, row.due_at) != (before.status, before.owner, before.due_at):
                assert row.version > before.version, "who read it before could not know"
        self.seen = now

    def teardown(self) -> None:
        """Whatever happened: once the dead are cleared away, everything can be brought to rest."""
        world = self.world
        for keeper in self.alive:
            world.die(keeper)
        for keeper in self.alive + self.dead:
            world.give_back(keeper)
        for batch_id in self.batches:
            row = world.batch_row(batch_id)
            if row.phase == "loading":
                world.database.write(lambda tx, r=row: operations.open_batch(tx, r, unowned=True))  # type: ignore[misc]
            operations.run_operation(world.database, batch_id)
        keeper = world.keeper()
        while dues := world.dues():
            won = runs.acquire(world.database, keeper, dues)
            assert [due.id for due in won] == [due.id for due in dues], "it waits for ever"
            world.release(keeper, [over(due) for due in won])
        for batch_id in self.batches:
            world.upkeep(batch_id)
            assert world.batch_row(batch_id).finished
        assert {row.status for row in world.rows(TaskRow)} <= {state.value for state in FINISHED}
        world.check_laws()


def play(database: Database, examples: int, steps: int) -> None:
    at_once = mock.patch("drumline.store.database.random.uniform", return_value=0.0)
    with mock.patch.object(operations, "CHUNK", 2), at_once:
        run_state_machine_as_test(
            lambda: Histories(database),  # type: ignore[arg-type]  # a factory will do
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                suppress_health_check=list(HealthCheck),
            ),
        )


def test_histories_on_sqlite(sqlite_database: Database) -> None:
    play(sqlite_database, examples=40, steps=40)


def test_histories_on_mariadb(mariadb_database: Database) -> None:
    play(mariadb_database, examples=5, steps=30)
