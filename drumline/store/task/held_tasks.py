"""Held tasks: read by their keeper, requested to stop, and given back after a keeper's end."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from functools import partial
from types import MappingProxyType

import msgspec
from sqlalchemy import bindparam, select

from drumline.domain.policy import HandlerSpec, Retry
from drumline.domain.release import FinishedRun, RetryLimits, RunEnd, RunOutcome
from drumline.domain.states import TaskState
from drumline.store.database import Database
from drumline.store.node import handlers
from drumline.store.rows import StoredRow, TaskRow, columns_of, read_rows
from drumline.store.tables import STOP_KILL, task
from drumline.store.task.runs import release
from drumline.store.tx import Tx

GROUP = 500


class HeldRow(StoredRow, frozen=True):
    """What the release of a held task is decided from."""

    table = task

    id: int
    fence: int
    status: TaskState
    batch_id: int | None
    attempt: int
    retry_time: int
    failures: int
    deaths: int
    due_at: int
    type: str
    target_type: str
    started_at: int
    retry: str | None
    job_id: int | None


_COLUMNS = columns_of(HeldRow)


def give_back(
    database: Database,
    region: str,
    keeper_id: int,
    limits: RetryLimits,
    *,
    died: Mapping[int, str] = MappingProxyType({}),
    only: Collection[int] | None = None,
) -> list[FinishedRun]:
    """Give back the tasks that a keeper holds. Those in `died` are charged with its death."""
    rows = database.read(partial(read_held_tasks, region=region, keeper_id=keeper_id))
    specs = database.read(partial(handlers.by_key, region=region))
    over = []
    for row in rows:
        if only is None or row.id in only:
            info = died.get(row.id)
            outcome = (
                RunOutcome(RunEnd.GIVEN_BACK) if info is None else RunOutcome(RunEnd.DIED, info)
            )
            over.append(finished_run(row, outcome, specs, f"keeper {keeper_id}"))
    for start in range(0, len(over), GROUP):
        release(database, keeper_id, over[start : start + GROUP], limits, random.random())
    return over


def finished_run(
    row: HeldRow | TaskRow, outcome: RunOutcome, specs: Mapping[str, HandlerSpec], worker: str
) -> FinishedRun:
    """The finished run of a held task, for `release`."""
    key = f"{row.target_type}/{row.type}"
    return FinishedRun(
        id=row.id,
        fence=row.fence,
        status=row.status,
        batch_id=row.batch_id,
        attempt=row.attempt,
        retry_time=row.retry_time,
        failures=row.failures,
        deaths=row.deaths,
        due_at=row.due_at,
        retry=None if row.retry is None else msgspec.json.decode(row.retry, type=Retry),
        is_job_run=row.job_id is not None,
        outcome=outcome,
        handler=specs.get(key, HandlerSpec(row.target_type, row.type)),
        worker=worker,
        started_at=row.started_at,
    )


def read_held_tasks(tx: Tx, region: str, keeper_id: int) -> list[HeldRow]:
    """The tasks that a keeper holds, from ix_task_queue."""
    return read_rows(
        tx, HeldRow, select(*_COLUMNS).where(task.c.region == region, task.c.owner == keeper_id)
    )


_STOPPED = select(task.c.id, task.c.fence).where(
    task.c.region == bindparam("region"),
    task.c.owner == bindparam("keeper_id"),
    task.c.stop == STOP_KILL,
)


def read_tasks_to_kill(tx: Tx, region: str, keeper_id: int) -> list[tuple[int, int]]:
    """The (id, fence) of this keeper's runs that an operator has requested to kill."""
    rows = tx.execute(_STOPPED, {"region": region, "keeper_id": keeper_id})
    return [(row.id, row.fence) for row in rows]
