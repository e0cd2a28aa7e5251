"""What the store's tests are told in: keepers, batches and tasks, and the laws they all obey."""

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from unittest import mock

import pymysql
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError

from drumline.domain.policy import HandlerSpec
from drumline.domain.release import FinishedRun, RetryLimits, RunEnd, RunOutcome
from drumline.domain.states import (
    ACQUIRED,
    DUE,
    FINISHED,
    HELD,
    BatchOperation,
    KeeperState,
    Phase,
    TaskState,
)
from drumline.domain.task import DueTask
from drumline.store.batch import batches, operations
from drumline.store.database import Database
from drumline.store.node import handlers, keepers
from drumline.store.rows import AttemptRow, BatchRow, R, StoredRow, TaskRow, read_rows
from drumline.store.tables import ANYONE, NOBODY, batch, count_column, pause, task
from drumline.store.tables import attempt as attempt_table
from drumline.store.tables import result as result_table
from drumline.store.task import held_tasks, runs, scan, tasks
from drumline.store.tx import Tx

T = TypeVar("T")

REGION = "here"
SPEC = HandlerSpec("target", "type")
LIMITS = RetryLimits(timeout_retries=2, deaths_allowed=3)
FAR = 2**60
"""A time after all others."""


class ResultRow(StoredRow, frozen=True):
    table = result_table

    task_id: int
    value: str


class PauseRow(StoredRow, frozen=True):
    table = pause

    region: str
    type: str
    created_at: int


class World:
    """A database and short words for what happens in it."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # --- who and what is there -----------------------------------------------------------------

    def keeper(self, name: str = "worker", node: str = "node") -> int:
        return self.database.write(
            lambda tx: keepers.register(
                tx, name=name, region=REGION, node=node, pid=1, pid_started=1
            )
        )

    def batch(
        self,
        size: int,
        *,
        batch_type: str = SPEC.type,
        captured: Iterable[int] = (),
        opened: bool = True,
        **values: Any,
    ) -> tuple[int, list[int]]:
        """A batch of tasks; those whose place is in `captured` can be rolled back."""
        with_before = set(captured)

        def work(tx: Tx) -> int:
            about = {"name": "a batch", "batch_type": batch_type, "target_type": SPEC.target_type}
            batch_id = batches.create(tx, {"region": REGION, **about})
            rows = [
                new_task(
                    tx,
                    batch_id=batch_id,
                    type=batch_type,
                    owner=ANYONE if opened else NOBODY,
                    before_update='"old"' if place in with_before else None,
                    **values,
                )
                for place in range(size)
            ]
            tasks.add_to_batch(tx, batch_id, rows)
            if opened:
                assert operations.open_batch(tx, batches.get(tx, batch_id), unowned=False)
            return batch_id

        batch_id = self.database.write(work)
        return batch_id, self.members(batch_id)

    def scene(
        self, statuses: Sequence[str], phase: str, captured: Iterable[int] = ()
    ) -> tuple[int, list[int]]:
        """A batch whose tasks are in these states, by force."""
        batch_id, members = self.batch(len(statuses), captured=captured)
        for member, status in zip(members, statuses, strict=True):
            over = status in FINISHED
            times = {"finished_at": self.task(member).created_at if over else 0}
            owner = NOBODY if over else ANYONE
            self.set_task(member, status=status, owner=owner, **times)
        counts = Counter(statuses)
        columns = {count_column(state): counts[state.value] for state in TaskState}
        self.set_batch(batch_id, phase=phase, **columns)
        return batch_id, members

    def one_shot(self, **values: Any) -> int:
        return self.database.write(lambda tx: tasks.add_one(tx, new_task(tx, **values)))

    def announce(self, *specs: HandlerSpec) -> None:
        self.database.write(lambda tx: handlers.announce(tx, REGION, specs))

    # --- what it looks like --------------------------------------------------------------------

    def rows(self, kind: type[R], *conditions: Any) -> list[R]:
        first = next(iter(kind.table.primary_key))
        query = select(kind.table).where(*conditions).order_by(first)
        return self.database.read(lambda tx: read_rows(tx, kind, query))

    def task(self, task_id: int | None) -> TaskRow:
        (row,) = self.rows(TaskRow, task.c.id == task_id)
        return row

    def task_status(self, task_id: int) -> str:
        with self.database.engine.connect() as connection:
            return str(
                connection.execute(select(task.c.status).where(task.c.id == task_id)).scalar()
            )

    def members(self, batch_id: int) -> list[int]:
        return [row.id for row in self.rows(TaskRow, task.c.batch_id == batch_id)]

    def statuses(self, batch_id: int) -> list[str]:
        return [row.status for row in self.rows(TaskRow, task.c.batch_id == batch_id)]

    def batch_row(self, batch_id: int) -> BatchRow:
        return self.database.read(lambda tx: batches.get(tx, batch_id))

    def attempts(self, task_id: int) -> list[AttemptRow]:
        return self.rows(AttemptRow, attempt_table.c.task_id == task_id)

    def result(self, task_id: int) -> str | None:
        found = self.rows(ResultRow, result_table.c.task_id == task_id)
        return found[0].value if found else None

    def dues(self, ids: Iterable[int | None] | None = None) -> list[DueTask]:
        """What a scan finds, in the order in which it finds it."""

        def work(tx: Tx) -> list[DueTask]:
            found = scan.ids(tx, REGION, FAR, None, 10_000)
            wanted = None if ids is None else set(ids)
            some = [cursor.id for cursor, _ in found if wanted is None or cursor.id in wanted]
            known: dict[int, bytes] = {}
            by_id = {due.id: due for due in scan.load(tx, some, known)}
            return [by_id[i] for i in some]

        return self.database.read(work)

    # --- what happens --------------------------------------------------------------------------

    def acquire(self, keeper_id: int, ids: Iterable[int | None] | None = None) -> list[DueTask]:
        return runs.acquire(self.database, keeper_id, self.dues(ids))

    def release(
        self, keeper_id: int, ended: Sequence[FinishedRun], limits: RetryLimits = LIMITS
    ) -> list[int]:
        return runs.release(self.database, keeper_id, ended, limits, 0.5)

    def run(
        self, keeper_id: int, ids: Iterable[int] | None = None, end: RunEnd = RunEnd.SUCCESS
    ) -> None:
        """From waiting to the end of a run."""
        ended = [over(due, end) for due in self.acquire(keeper_id, ids)]
        assert self.release(keeper_id, ended) == []

    def die(self, keeper_id: int) -> None:
        """The reaper declares a keeper dead."""
        assert self.database.write(lambda tx: keepers.close(tx, keeper_id, KeeperState.DEAD))

    def give_back(self, keeper_id: int, died: Iterable[int] = ()) -> list[FinishedRun]:
        charged = dict.fromkeys(died, "its worker died")
        return held_tasks.give_back(self.database, REGION, keeper_id, LIMITS, died=charged)

    def begin(self, batch_id: int, operation: BatchOperation, phase: Phase) -> bool:
        return self.database.write(
            lambda tx: operations.begin_operation(tx, batches.get(tx, batch_id), operation, phase)
        )

    def run_operation(self, batch_id: int, operation: BatchOperation, phase: Phase) -> None:
        """Write an operation into a batch and run it."""
        assert self.begin(batch_id, operation, phase)
        operations.run_operation(self.database, batch_id)

    def upkeep(self, batch_id: int) -> str:
        """Keep a batch's status; what it is then."""
        row = self.batch_row(batch_id)
        self.database.write(lambda tx: batches.update_status(tx, row))
        return str(self.batch_row(batch_id).status)

    def set_task(self, task_id: int | None, **values: Any) -> None:
        """By force, as no code does it: to set a scene."""
        self.database.write(
            lambda tx: tx.execute(update(task).where(task.c.id == task_id).values(**values))
        )

    def set_batch(self, batch_id: int, **values: Any) -> None:
        self.database.write(
            lambda tx: tx.execute(update(batch).where(batch.c.id == batch_id).values(**values))
        )

    # --- the laws ------------------------------------------------------------------------------

    def check_laws(self) -> list[TaskRow]:
        """What holds after every transaction, whoever did what. Returns the tasks as they are."""
        members: dict[int | None, Counter[str]] = {}
        all_batches, all_tasks = self.rows(BatchRow), self.rows(TaskRow)
        unopened = {
            row.id for row in all_batches if row.phase == "loading" or row.operation is not None
        }
        for row in all_tasks:
            status = row.status
            members.setdefault(row.batch_id, Counter())[status.value] += 1
            about = f"task {row.id} is {status} with owner {row.owner}"
            if status in DUE:
                parked = row.owner == NOBODY and row.batch_id in unopened
                assert row.owner == ANYONE or parked, about
            elif status in HELD:
                assert row.owner > ANYONE, about
                assert row.fence == row.version, about
            elif status in FINISHED:
                assert row.owner == NOBODY, about
                assert row.unique_key is None, about
            assert (row.finished_at > 0) == (status in FINISHED), about
            assert row.stop == 0 or status in HELD, about
            assert row.fence <= row.version, about
            assert row.attempt >= 0, about
        for parent in all_batches:
            counted = {s.value: getattr(parent, count_column(s)) for s in TaskState}
            found = members.get(parent.id, Counter())
            assert {s: n for s, n in counted.items() if n} == dict(found), f"batch {parent.id}"
            assert parent.total == found.total(), f"batch {parent.id}"
            if parent.finished:
                assert set(found) <= FINISHED, f"batch {parent.id} is finished with {found}"
                assert parent.operation is None
        return all_tasks


def new_task(tx: Tx, **values: Any) -> dict[str, Any]:
    standard = {"type": SPEC.type, "target_type": SPEC.target_type, "timeout_ms": 1000}
    return tasks.new_row(tx.now, REGION, standard | values)


def over(
    due: DueTask,
    end: RunEnd = RunEnd.SUCCESS,
    *,
    info: str | None = None,
    result: str | None = None,
    handler: HandlerSpec = SPEC,
    **changes: Any,
) -> FinishedRun:
    """The end of the run that acquiring this task began, as its keeper tells it."""
    if info is None and end in (RunEnd.ERROR, RunEnd.TIMEOUT, RunEnd.DIED):
        info = f"it was: {end}"
    values: dict[str, Any] = {
        "id": due.id,
        "fence": due.fence,
        "status": ACQUIRED[due.status],
        "batch_id": due.batch_id,
        "attempt": due.attempt + 1,
        "retry_time": due.retry_time,
        "failures": due.failures,
        "deaths": due.deaths,
        "due_at": due.due_at,
        "outcome": RunOutcome(end, info=info, result=result),
        "handler": handler,
        "worker": "worker",
        "started_at": 1,
    }
    return FinishedRun(**values | changes)


def not_none(value: T | None) -> T:
    """A value that must be set here."""
    assert value is not None
    return value


# --- faults ----------------------------------------------------------------------------------


def passing_fault(database: Database) -> OperationalError:
    """The error of a connection that was lost."""
    lost: Exception = pymysql.err.OperationalError(2013, "Lost connection to server during query")
    if database.dialect.name == "sqlite":
        lost = sqlite3.OperationalError("disk I/O error")
    return OperationalError("COMMIT", None, lost)


@contextmanager
def commit_of_unknown_fate(database: Database, surely: bool = True) -> Iterator[None]:
    """The next commit happens, and the news of it is lost."""
    really = database._write_once
    lost: list[str] = []

    def write(work: Callable[[Tx], T]) -> T:
        answer = really(work)
        if not lost:
            lost.append("lost")
            raise passing_fault(database)
        return answer

    with mock.patch.object(database, "_write_once", write):
        yield
    assert lost or not surely, "no commit was lost"


class Crash(BaseException):
    """The process ends here."""


@contextmanager
def crash_after(database: Database, commits: int) -> Iterator[None]:
    """The process dies after so many more commits."""
    really = database._write_once
    left = [commits]

    def write(work: Callable[[Tx], T]) -> T:
        if not left[0]:
            raise Crash
        left[0] -= 1
        return really(work)

    with mock.patch.object(database, "_write_once", write):
        yield


def at_once(*works: Callable[[], T]) -> list[T]:
    """Do these in threads that start together; what each returned, or the first error."""
    barrier = threading.Barrier(len(works))

    def started(work: Callable[[], T]) -> T:
        barrier.wait(10)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        futures: list[Future[T]] = [pool.submit(started, work) for work in works]
        return [future.result(60) for future in futures]


def while_open(
    database: Database, first: Callable[[Tx], object], second: Callable[[], T], moment: float = 0.3
) -> T:
    """Begin `second` when `first` has been done and not committed yet."""
    begun: list[Future[T]] = []

    def work(tx: Tx) -> None:
        first(tx)
        if not begun:
            begun.append(pool.submit(second))
            with suppress(TimeoutError):  # it waits for us, as it should
                begun[0].exception(moment)

    with ThreadPoolExecutor(1) as pool:
        database.write(work)
        return begun[0].result(30)
