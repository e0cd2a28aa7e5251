"""Decisions about firings, each written in one transaction with the firing's row.

Each decision compares and sets the job's decision number, so two deciders (tickers, triggers)
cannot both pass a concurrency limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import select, update

from drumline.domain.jobs.firing import (
    ActiveRun,
    ConcurrencyPolicy,
    EarlierRuns,
    FailureAction,
    FiringDecision,
    FiringKind,
    LastRun,
    decide_firing,
    startable_runs,
)
from drumline.domain.states import HELD, Cause, TaskState, check_transition
from drumline.errors import Conflict
from drumline.store.job import jobs
from drumline.store.job.firings import is_plain, row_for
from drumline.store.rows import JobRow, StoredRow, columns_of, read_rows
from drumline.store.tables import ANYONE, NOBODY, STOP_KILL, TICKER, job, task
from drumline.store.task.tasks import add_one
from drumline.store.tx import RaceLost, Tx

S = TaskState
CLOCKS_APART = 60_000_000
"""Another decider's time may be later than ours: its clock, or our wait for the job's row."""
WAITING = (S.SCHEDULED, S.PENDING, S.RETRY_PENDING, S.WAITING_CALLBACK)


def fire(tx: Tx, firings: Mapping[int, int]) -> dict[int, FiringDecision]:
    """Decide scheduled firings, given as firing and job, at most one of each job.

    Firings that were decided or deleted meanwhile are left out. RaceLost if another decider changed
    one of the jobs, or a run to be replaced has just started or ended.
    """
    undecided = (task.c.id.in_(sorted(firings)), task.c.owner == TICKER)
    found = tx.execute(select(task.c.id).where(*undecided)).scalars()
    chosen = {firings[firing_id]: firing_id for firing_id in found}
    if not chosen:
        return {}
    rows = jobs.begin_decisions(tx, sorted(chosen))
    earlier = earlier_of(tx, rows.values(), set(chosen.values()))
    decisions: dict[int, FiringDecision] = {}
    queues: list[tuple[JobRow, bool]] = []
    alike: defaultdict[FiringDecision, list[int]] = defaultdict(list)
    for job_id, firing_id in chosen.items():
        decision = decide_firing(
            jobs.policies_of(rows[job_id]), earlier[job_id], FiringKind.SCHEDULED
        )
        _cancel(tx, earlier[job_id], decision.cancel)
        decisions[firing_id] = decision
        alike[replace(decision, cancel=())].append(firing_id)
        still_queued = set(earlier[job_id].queued) - set(decision.cancel)
        queues.append((rows[job_id], decision.state is S.SCHEDULED or bool(still_queued)))
    for decision, ids in alike.items():
        changed = tx.execute(
            update(task)
            .where(task.c.id.in_(sorted(ids)), task.c.owner == TICKER)
            .values(**_decided(tx, decision), version=task.c.version + 1, updated_at=tx.now)
        ).rowcount
        if changed != len(ids):
            raise RaceLost
    jobs.record_queues(tx, queues)
    return decisions


def trigger(tx: Tx, job_id: int) -> tuple[int, FiringDecision]:
    """Fire a job by hand, now, under its concurrency rules."""
    row = jobs.begin_decision(tx, job_id)
    earlier = earlier_of(tx, [row])[row.id]
    decision = decide_firing(jobs.policies_of(row), earlier, FiringKind.MANUAL)
    values = row_for(tx, row, tx.now, tx.now, FiringKind.MANUAL) | _decided(tx, decision)
    task_id = add_one(tx, values)
    jobs.record_queues(tx, [(row, decision.state is S.SCHEDULED or bool(earlier.queued))])
    return task_id, decision


def admit_again(tx: Tx, job_id: int) -> None:
    """Refuse to run an ended run again if the job's concurrency limit is reached."""
    row = jobs.begin_decision(tx, job_id)
    limit = row.max_concurrency
    if not limit or row.concurrency_policy == ConcurrencyPolicy.PARALLEL:
        return
    active = len(earlier_of(tx, [row])[row.id].active)
    if active >= limit:
        raise Conflict(
            reason=f"job {job_id} has {active} runs under way, its max_concurrency is {limit}: "
            "retry this one when they have ended"
        )


def _decided(tx: Tx, decision: FiringDecision) -> dict[str, Any]:
    values: dict[str, Any] = {
        "status": decision.state,
        "owner": ANYONE if decision.state is S.PENDING else NOBODY,
        "cause": decision.cause,
        "info": decision.reason,
        "run_attempt": decision.run_attempt,
    }
    if decision.state is not S.SCHEDULED:
        check_transition(S.SCHEDULED, decision.state)
    if decision.state is S.SKIPPED:
        values |= {"finished_at": tx.now, "active_job_id": None}
    return values


# --- what came before ----------------------------------------------------------------------------


def earlier_of(
    tx: Tx, rows: Iterable[JobRow], deciding: Collection[int] = ()
) -> dict[int, EarlierRuns]:
    """The earlier runs of these jobs. The firings in `deciding` are left out."""
    rows = list(rows)
    # Only these two actions need it; it reads every skip since that run.
    asking = (FailureAction.SKIP, FailureAction.RETRY)
    last = _last(tx, [row.id for row in rows if row.failure_action in asking])
    return {
        job_id: EarlierRuns(tuple(active), tuple(queued), last.get(job_id))
        for job_id, (active, queued) in _under_way(tx, rows, deciding).items()
    }


class _UnfinishedFiring(StoredRow, frozen=True):
    """A firing that is not decided, waits or runs."""

    table = task

    active_job_id: int
    id: int
    status: TaskState
    owner: int
    stop: int
    scheduled_at: int
    fired_by: FiringKind


class _LastStarted(StoredRow, frozen=True):
    """The last run of a job that started."""

    table = task

    job_id: int
    status: TaskState
    run_attempt: int | None
    scheduled_at: int
    finished_at: int


_UNFINISHED_COLUMNS = columns_of(_UnfinishedFiring)
_LAST_STARTED_COLUMNS = columns_of(_LastStarted)

UnderWay = tuple[list[ActiveRun], list[int]]


def _under_way(
    tx: Tx, rows: Iterable[JobRow], deciding: Collection[int] = ()
) -> dict[int, UnderWay]:
    """The started or due runs of jobs, and the queued ones, in the order of their times."""
    plain = {row.id: is_plain(row) for row in rows}
    found: dict[int, UnderWay] = {job_id: ([], []) for job_id in plain}
    runs = read_rows(
        tx,
        _UnfinishedFiring,
        select(*_UNFINISHED_COLUMNS)
        .where(task.c.active_job_id.in_(list(plain)), task.c.scheduled_at <= tx.now + CLOCKS_APART)
        .order_by(task.c.active_job_id, task.c.scheduled_at, task.c.id),
    )
    for run in runs:
        if run.owner == TICKER or run.id in deciding:
            continue
        ahead = run.scheduled_at > tx.now and run.fired_by == FiringKind.SCHEDULED
        if plain[run.active_job_id] and ahead:
            continue  # made pending ahead of its time: it is not active yet
        active, queued = found[run.active_job_id]
        if run.status == S.SCHEDULED:
            queued.append(run.id)
        else:
            active.append(ActiveRun(run.id, run.status in HELD, run.stop == STOP_KILL))
    return found


def _last(tx: Tx, job_ids: Sequence[int]) -> dict[int, LastRun]:
    """The last effective run of each of these jobs."""
    if not job_ids:
        return {}
    started = (
        select(task.c.id)
        .where(
            task.c.job_id == job.c.id,
            task.c.scheduled_at <= tx.now + CLOCKS_APART,
            task.c.started_at > 0,
        )
        .order_by(task.c.scheduled_at.desc())
        .limit(1)
        .correlate(job)
        .scalar_subquery()
    )
    ids = [i for i in tx.execute(select(started).where(job.c.id.in_(job_ids))).scalars() if i]
    found = select(*_LAST_STARTED_COLUMNS).where(task.c.id.in_(ids))
    runs = read_rows(tx, _LastStarted, found) if ids else []
    return {
        run.job_id: LastRun(run.status, run.run_attempt or 1, _skipped_since(tx, run))
        for run in runs
    }


def _skipped_since(tx: Tx, run: _LastStarted) -> bool:
    """Whether a firing was skipped after the failure, not because it overlapped the run."""
    if run.status not in (S.FAIL, S.CANCEL):
        return False
    skipped = (
        select(task.c.id)
        .where(
            task.c.job_id == run.job_id,
            task.c.scheduled_at > run.scheduled_at,
            task.c.status == S.SKIPPED,
            task.c.finished_at >= run.finished_at,
        )
        .limit(1)
    )
    return tx.execute(skipped).first() is not None


def _cancel(tx: Tx, earlier: EarlierRuns, ids: Sequence[int]) -> None:
    """Cancel runs that a firing replaces: at once if they wait, by force if they run.

    Their states were read before. If one has started or ended since, the decision is outdated: the
    new run could start beside the old one.
    """
    if not ids:
        return
    held = {run.id for run in earlier.active if run.started}.intersection(ids)
    waiting = set(ids) - held
    ended = tx.execute(
        update(task)
        .where(task.c.id.in_(sorted(waiting)), task.c.status.in_(WAITING))
        .values(
            status=S.CANCEL,
            cause=Cause.OVERLAP,
            info="replaced by a later firing of its job",
            owner=NOBODY,
            active_job_id=None,
            finished_at=tx.now,
            version=task.c.version + 1,
            updated_at=tx.now,
        )
    ).rowcount
    stopped = tx.execute(
        update(task)
        .where(task.c.id.in_(sorted(held)), task.c.status.in_(sorted(HELD)))
        .values(stop=STOP_KILL)
    ).rowcount
    if ended != len(waiting) or stopped != len(held):
        raise RaceLost


# --- queued --------------------------------------------------------------------------------------


def startable_jobs(tx: Tx, region: str) -> list[int]:
    """The jobs for which `start_queued` has anything to do. Takes no locks."""
    rows = jobs.rows_of(tx, jobs.read_jobs_with_queue(tx, region))
    return [
        job_id
        for job_id, (active, queued) in _under_way(tx, rows.values()).items()
        if not queued or startable_runs(jobs.policies_of(rows[job_id]), active, queued)
    ]


def start_queued(tx: Tx, job_id: int) -> list[int]:
    """Make queued runs of a job pending as far as its limit allows; returns them."""
    row = jobs.begin_decision(tx, job_id)
    earlier = earlier_of(tx, [row])[row.id]
    ready = startable_runs(jobs.policies_of(row), earlier.active, earlier.queued)
    if ready:
        changed = tx.execute(
            update(task)
            .where(task.c.id.in_(ready), task.c.status == S.SCHEDULED, task.c.owner == NOBODY)
            .values(
                status=S.PENDING,
                owner=ANYONE,
                cause=None,
                due_at=tx.now,
                version=task.c.version + 1,
                updated_at=tx.now,
            )
        ).rowcount
        if changed != len(ready):
            raise RaceLost
    jobs.record_queues(tx, [(row, len(earlier.queued) > len(ready))])
    return list(ready)
