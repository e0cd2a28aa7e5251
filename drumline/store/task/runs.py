"""The writes of a run: acquire, capture, release. Each one is fenced and counts its rows.

A write changes all of its rows or none. If it changes fewer, the transaction is rolled back, the
rows are read, the lost ones are left out, and the rest is tried again. So a commit of unknown fate
is found to be done, and no counter changes twice.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from sqlalchemy import BigInteger, Update, bindparam, case, func, insert, select, update

from drumline.domain.release import (
    FinishedRun,
    ReleaseDecision,
    RetryLimits,
    RunEnd,
    decide_release,
)
from drumline.domain.states import ACQUIRED, FINISHED, Phase, TaskState, check_transition
from drumline.domain.sweeps.definition import HOOK_TARGET_TYPE, PARTITION_TARGET_TYPE
from drumline.domain.task import DueTask
from drumline.errors import MoreRowsThanAsked
from drumline.store.admin import alarms
from drumline.store.batch.batches import PhaseChanged, phases_of
from drumline.store.database import Database
from drumline.store.node import keepers
from drumline.store.rows import StoredRow, columns_of, read_rows
from drumline.store.sweep import sweep_ends
from drumline.store.tables import ANYONE, CALLER, NO_STOP, NOBODY, STOP_KILL, attempt, result, task
from drumline.store.tx import RaceLost, Tx

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def acquire(database: Database, keeper_id: int, dues: Sequence[DueTask]) -> list[DueTask]:
    """Acquire these tasks in one commit. Returns those that were won; losing some is normal.

    The keeper must not hold any of them: such a task would look like one won by a commit of unknown
    fate, and would be started a second time.
    """
    already: list[DueTask] = []
    wanted = list({due.id: due for due in dues}.values())
    while wanted:
        try:
            database.write(partial(_acquire, keeper_id=keeper_id, dues=wanted))
            return sorted(already + wanted, key=lambda due: (-due.priority, due.due_at, due.id))
        except RaceLost:
            rows = database.read(partial(_read_versions, ids=[due.id for due in wanted]))
            mine = {i for i, row in rows.items() if row.owner == keeper_id}
            already += [d for d in wanted if d.id in mine and rows[d.id].fence == d.fence]
            free = {i: (r.version, r.status) for i, r in rows.items() if r.owner == ANYONE}
            wanted = [due for due in wanted if free.get(due.id) == (due.version, due.status)]
        except PhaseChanged as changed:
            # While a rollback is applied, a batch has due tasks of both phases.
            phase = database.read(partial(phases_of, ids=[changed.batch_id]))
            wanted = [
                due
                for due in wanted
                if due.batch_id != changed.batch_id
                or phase.get(due.batch_id) is _phase_for(ACQUIRED[due.status])
            ]
    return already


def _acquire(tx: Tx, keeper_id: int, dues: Iterable[DueTask]) -> None:
    keepers.record_heartbeat(tx, keeper_id)
    for (status, version), group in _grouped(dues, lambda due: (due.status, due.version)):
        target = ACQUIRED[status]
        _update_all(
            tx,
            _ACQUIRE,
            group,
            {
                "new_status": target,
                "new_owner": keeper_id,
                "now": tx.now,
                "old_status": status,
                "old_version": version,
            },
        )
        for due in group:
            tx.record_counter_change(due.batch_id, status, target, 1)
            tx.require_phase(due.batch_id, _phase_for(target))


def _phase_for(held: TaskState) -> Phase:
    """The phase that a batch must be in while a task of it has this state."""
    return Phase.ROLLBACK if held is TaskState.ROLLBACK_RUNNING else Phase.FORWARD


_ACQUIRE = (
    update(task)
    .where(
        task.c.id.in_(bindparam("ids", expanding=True)),
        task.c.owner == ANYONE,
        task.c.status == bindparam("old_status"),
        task.c.version == bindparam("old_version"),
    )
    .values(
        status=bindparam("new_status"),
        owner=bindparam("new_owner"),
        fence=task.c.version + 1,
        version=task.c.version + 1,
        attempt=task.c.attempt + 1,
        started_at=bindparam("now"),
        updated_at=bindparam("now"),
        finished_at=0,
    )
)


def capture(
    database: Database, keeper_id: int, run_id: int, fence: int, before: str, after: str | None
) -> bool:
    """Store the state that a handler found before its change. The first capture stays. False if the
    run has lost its task."""

    def work(tx: Tx) -> bool:
        mine = (task.c.id == run_id, task.c.owner == keeper_id, task.c.fence == fence)
        changed = tx.execute(
            update(task)
            .where(*mine, task.c.before_update.is_(None))
            .values(before_update=before, after_update=after)
        ).rowcount
        if changed:
            return True
        return tx.execute(select(task.c.id).where(*mine)).first() is not None

    return database.write(work)


def release(
    database: Database,
    keeper_id: int,
    ended: Sequence[FinishedRun],
    limits: RetryLimits,
    chance: float,
) -> list[int]:
    """Write the outcomes of runs in one commit. Returns the tasks that the owner has lost."""
    lost: list[int] = []
    remaining = list(ended)
    cancelled: set[int] = set()
    phases: dict[int, Phase] = {}
    while remaining:
        try:
            database.write(
                partial(
                    _release,
                    keeper_id=keeper_id,
                    ended=remaining,
                    limits=limits,
                    chance=chance,
                    cancelled=cancelled,
                    phases=phases,
                )
            )
            break
        except RaceLost:
            rows = database.read(partial(_read_versions, ids=[run.id for run in remaining]))
            alive = database.read(partial(keepers.is_alive, keeper_id=keeper_id))
            ours = {i for i, row in rows.items() if row.owner == keeper_id}
            ours &= {
                run.id for run in remaining if run.id in rows and rows[run.id].fence == run.fence
            }
            cancelled = {i for i in ours if rows[i].stop != NO_STOP}
            # Only the reaper takes tasks from an owner, and only from a dead keeper. A row that an
            # alive keeper no longer owns was released by its own commit of unknown fate.
            if not alive:
                lost += [run.id for run in remaining if run.id not in ours]
            remaining = [run for run in remaining if run.id in ours]
        except PhaseChanged:
            ids = sorted({run.batch_id for run in remaining if run.batch_id is not None})
            phases = database.read(partial(phases_of, ids=ids))
    return lost


def _release(
    tx: Tx,
    keeper_id: int,
    ended: Sequence[FinishedRun],
    limits: RetryLimits,
    chance: float,
    cancelled: set[int],
    phases: dict[int, Phase],
) -> None:
    verdicts: dict[int, ReleaseDecision] = {}
    swept = [
        run.id
        for run in ended
        if run.handler.target_type in (PARTITION_TARGET_TYPE, HOOK_TARGET_TYPE)
    ]
    owners = sweep_ends.lock_sweeps(tx, swept) if swept else {}
    for run in ended:
        phase = _phase_for(run.status)
        if run.batch_id is not None:
            phase = phases.get(run.batch_id, phase)
            tx.require_phase(run.batch_id, phase)
        verdicts[run.id] = verdict = decide_release(
            run,
            limits,
            cancelled=phase is Phase.CANCEL or run.id in cancelled,
            now=tx.now,
            chance=chance,
        )
        check_transition(run.status, verdict.status)
        tx.record_counter_change(run.batch_id, run.status, verdict.status, 1)
    for (verdict, status, fence), group in _grouped(
        ended, lambda run: (_without_result(verdicts[run.id]), run.status, run.fence)
    ):
        values: dict[str, Any] = {
            "new_owner": _next_owner(verdict),
            "now": tx.now,
            "finished": tx.now if verdict.status in FINISHED else 0,
            "failed": tx.now if verdict.cause else None,
            "new_status": verdict.status,
            "old_status": status,
            "old_owner": keeper_id,
            "old_fence": fence,
            "most_stop": STOP_KILL if verdict.status is TaskState.CANCEL else NO_STOP,
            "new_due_at": verdict.due_at,
            "attempt": verdict.attempt,
            "retry_time": verdict.retry_time,
            "failures": verdict.failures,
            "deaths": verdict.deaths,
        }
        if verdict.runs_again and verdict.cause is None:
            _update_all(tx, _GIVE_BACK, group, values)
            continue
        values |= {"cause": verdict.cause, "info": verdict.info}
        waits = verdict.status is TaskState.WAITING_CALLBACK
        over = verdict.status in FINISHED
        _update_all(tx, _WAIT if waits else _FINISH if over else _RELEASE, group, values)
    _store_results_and_attempts(tx, ended, verdicts)
    alarms.after_runs(tx, ended, verdicts)
    if owners:
        sweep_ends.apply_run_ends(tx, owners, ended, verdicts)


def release_in(tx: Tx, owner: int, ended: Sequence[FinishedRun], limits: RetryLimits) -> None:
    """Write the outcomes of runs within a transaction. RaceLost if the owner has lost some."""
    batch_ids = sorted({run.batch_id for run in ended if run.batch_id is not None})
    phases = phases_of(tx, batch_ids) if batch_ids else {}
    _release(tx, owner, ended, limits, random.random(), cancelled=set(), phases=phases)


def _without_result(verdict: ReleaseDecision) -> ReleaseDecision:
    """Results have their own table, so tasks that differ only in the result share a statement."""
    return verdict if verdict.result is None else msgspec.structs.replace(verdict, result=None)


def _next_owner(verdict: ReleaseDecision) -> int:
    if verdict.status is TaskState.WAITING_CALLBACK:
        return CALLER
    return ANYONE if verdict.runs_again else NOBODY


_MINE = (
    task.c.id.in_(bindparam("ids", expanding=True)),
    task.c.owner == bindparam("old_owner"),
    task.c.fence == bindparam("old_fence"),
    task.c.status == bindparam("old_status"),
    task.c.stop <= bindparam("most_stop"),
)
_END = (
    update(task)
    .where(*_MINE)
    .values(
        status=bindparam("new_status"),
        due_at=func.coalesce(bindparam("new_due_at", type_=BigInteger), task.c.due_at),
        attempt=bindparam("attempt"),
        retry_time=bindparam("retry_time"),
        failures=bindparam("failures"),
        deaths=bindparam("deaths"),
        last_failure_at=func.coalesce(bindparam("failed"), task.c.last_failure_at),
        owner=bindparam("new_owner"),
        version=task.c.version + 1,
        updated_at=bindparam("now"),
        finished_at=bindparam("finished"),
    )
)
_WAIT = _END.values(
    cause=bindparam("cause"),
    info=bindparam("info"),
    due_at=case((task.c.callback.is_not(None), bindparam("now")), else_=bindparam("new_due_at")),
)
"""A callback that came early stays and makes the run due at once, so that the reaper settles it if
the keeper ends first."""
_GIVE_BACK = _END.values(callback=None)
"""The last failure stays. The callback belongs to the attempt that ends here."""
_RELEASE = _GIVE_BACK.values(cause=bindparam("cause"), info=bindparam("info"))
_FINISH = _RELEASE.values(unique_key=None, active_job_id=None, stop=NO_STOP)


def _store_results_and_attempts(
    tx: Tx, ended: Sequence[FinishedRun], verdicts: dict[int, ReleaseDecision]
) -> None:
    """Store the results, and the attempts that did not succeed."""
    results = [
        {"task_id": run.id, "value": verdict.result}
        for run in ended
        if (verdict := verdicts[run.id]).result is not None
    ]
    if results:
        tx.execute(tx.dialect.upsert(result), results)
    failed = [
        {
            "task_id": run.id,
            "attempt": run.attempt,
            "cause": verdict.cause,
            "info": verdict.info,
            "worker": run.worker,
            "started_at": run.started_at,
            "finished_at": tx.now,
        }
        for run in ended
        if (verdict := verdicts[run.id]).cause is not None
        and run.outcome.end is not RunEnd.GIVEN_BACK
    ]
    if failed:
        tx.execute(insert(attempt), failed)


class _TaskVersion(StoredRow, frozen=True):
    """Who owns a task, and under which fence and version."""

    table = task

    id: int
    owner: int
    fence: int
    version: int
    status: TaskState
    stop: int


_VERSION_COLUMNS = columns_of(_TaskVersion)


def _read_versions(tx: Tx, ids: Sequence[int]) -> dict[int, _TaskVersion]:
    rows = read_rows(tx, _TaskVersion, select(*_VERSION_COLUMNS).where(task.c.id.in_(ids)))
    return {row.id: row for row in rows}


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> Iterable[tuple[K, list[T]]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups.items()


def _update_all(
    tx: Tx, statement: Update, group: Sequence[DueTask | FinishedRun], values: dict[str, Any]
) -> None:
    ids = sorted(item.id for item in group)
    changed = tx.execute(statement, {"ids": ids, **values}).rowcount
    if changed > len(ids):
        raise MoreRowsThanAsked(asked=len(ids), changed=changed)
    if changed < len(ids):
        raise RaceLost
