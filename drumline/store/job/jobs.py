"""Job rows: definitions, versions, and the counters that serialise work on a job's firings.

A transaction that writes or decides firings first updates the job's row by compare-and-set:
`decision` to decide, `fired_until` to materialise, `version` to change the definition. So these
transactions exclude each other, and the loser of a race starts again from the current row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import bindparam, delete, exists, func, insert, select, tuple_, update

from drumline.domain.jobs.firing import FiringPolicies
from drumline.domain.jobs.schedule import Schedule
from drumline.domain.states import Cause, TaskState
from drumline.errors import NameTaken, NotFound, VersionConflict
from drumline.store.rows import JobRow, read_first, read_one, read_rows
from drumline.store.tables import NOBODY, TICKER, job, task
from drumline.store.tx import RaceLost, Tx, new_id

ENABLED, DISABLED = "ENABLED", "DISABLED"
LARGEST_ID = 2**63 - 1

FOREVER = 2**62
"""`fired_until` of a job that does not fire again unless it is changed."""

RUN_COLUMNS = ("type", "target_type", "param", "retry", "priority", "timeout_ms", "env")
"""The columns that a run copies from its job."""


def schedule_of(row: JobRow) -> Schedule:
    """The schedule of a job."""
    return Schedule.parse(
        row.cron_expr,
        row.timezone,
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        jitter_seconds=row.jitter_seconds,
    )


def policies_of(row: JobRow) -> FiringPolicies:
    return FiringPolicies(
        row.overlap_action,
        row.failure_action,
        row.concurrency_policy,
        row.max_concurrency,
    )


def run_values(row: JobRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in RUN_COLUMNS}


# --- defined -------------------------------------------------------------------------------------


def create(tx: Tx, region: str, values: Mapping[str, Any]) -> int:
    """A new job; its firings begin now."""
    _free_name(tx, region, values["name"])
    return new_id(
        tx.execute(
            insert(job).values(
                **values,
                region=region,
                unique_name=unique_name(region, values["name"]),
                deleted=False,
                version=1,
                decision=0,
                fired_until=tx.now,
                queued=False,
                changed_at=tx.now,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )
    )


def get(tx: Tx, region: str, key: int | str) -> JobRow:
    """A job that is not deleted, by its name or its id. A name of digits comes before an id."""
    here = select(job).where(job.c.region == region, job.c.deleted.is_(False))
    row = None
    if isinstance(key, str):
        row = read_first(tx, JobRow, here.where(job.c.unique_name == unique_name(region, key)))
    if row is None and (number := _as_id(key)):
        row = read_first(tx, JobRow, here.where(job.c.id == number))
    if row is None:
        raise NotFound(noun="job", id=key)
    return row


def rows_of(tx: Tx, ids: Sequence[int]) -> dict[int, JobRow]:
    rows = read_rows(tx, JobRow, select(job).where(job.c.id.in_(ids)))
    return {row.id: row for row in rows}


def listed(
    tx: Tx, region: str, *, status: str | None = None, before: int | None = None, limit: int = 50
) -> list[JobRow]:
    """The newest jobs first, a page at a time."""
    statement = select(job).where(job.c.region == region, job.c.deleted.is_(False))
    if status is not None:
        statement = statement.where(job.c.status == status)
    if before is not None:
        statement = statement.where(job.c.id < before)
    return read_rows(tx, JobRow, statement.order_by(job.c.id.desc()).limit(limit))


def change(tx: Tx, row: JobRow, version: int | None, values: Mapping[str, Any]) -> None:
    """Change a job and revoke its unstarted firings, in one transaction.

    The job's row is written first. A ticker that materialises this job at the same time either
    fails its compare-and-set, or has committed before, and then its firings are seen here.
    """
    if version is not None and version != row.version:
        raise VersionConflict(id=row.id, found=row.version, wanted=version)
    if values.get("name", row.name) != row.name:
        _free_name(tx, row.region, values["name"])
        values = {**values, "unique_name": unique_name(row.region, values["name"])}
    changed = tx.execute(
        update(job)
        .where(job.c.id == row.id, job.c.version == row.version)
        .values(
            **values,
            version=row.version + 1,
            decision=job.c.decision + 1,
            fired_until=tx.now,
            changed_at=tx.now,
            updated_at=tx.now,
        )
    ).rowcount
    if changed != 1:
        raise RaceLost
    now = read_one(tx, JobRow, select(job).where(job.c.id == row.id))
    _revoke_unstarted(tx, now, stopped=now.status != row.status == ENABLED or now.deleted)


def switch(tx: Tx, row: JobRow, version: int | None, status: str) -> None:
    """Enable or disable a job. A job that has the status already keeps its firings."""
    if row.status != status:
        change(tx, row, version, {"status": status})
    elif version is not None and version != row.version:
        raise VersionConflict(id=row.id, found=row.version, wanted=version)


def remove(tx: Tx, row: JobRow, version: int | None = None) -> None:
    """Mark a job as deleted. Its name becomes free, its runs stay."""
    change(tx, row, version, {"status": DISABLED, "deleted": True, "unique_name": None})


def _revoke_unstarted(tx: Tx, row: JobRow, stopped: bool) -> None:
    """Let no firing start with the old definition.

    Future firings are deleted; the ticker materialises those of an enabled job again. Undecided
    firings whose time has come are skipped. Pending and queued runs get the new definition, or are
    cancelled if the job was stopped. Their version changes, so that a keeper that has read the old
    row cannot acquire it.
    """
    unstarted = (
        task.c.active_job_id == row.id,
        task.c.attempt == 0,
        task.c.status.in_([TaskState.SCHEDULED, TaskState.PENDING]),
    )
    tx.execute(delete(task).where(*unstarted, task.c.scheduled_at > tx.now))
    now = {"version": task.c.version + 1, "updated_at": tx.now}
    over = now | {"owner": NOBODY, "active_job_id": None, "finished_at": tx.now}
    tx.execute(
        update(task)
        .where(*unstarted, task.c.owner == TICKER)
        .values(
            **over,
            status=TaskState.SKIPPED,
            cause=Cause.MISFIRE,
            info="the job was changed before this firing was decided",
        )
    )
    if stopped:
        how = "deleted" if row.deleted else "disabled"
        over |= {"status": TaskState.CANCEL, "cause": Cause.CANCELLED}
        over["info"] = f"the job was {how} before this run started"
        tx.execute(update(task).where(*unstarted).values(**over))
    else:
        tx.execute(update(task).where(*unstarted).values(**now, **run_values(row)))


# --- moved on ------------------------------------------------------------------------------------


class TickerState(NamedTuple):
    """Which kinds of work a ticker has. An idle ticker reads nothing else."""

    behind: bool
    """A job's firings are not materialised far enough ahead."""
    undecided: bool
    following: bool
    """A job fires after its own completion."""
    queued: bool


_HERE = job.c.region == bindparam("region")
_ENABLED = _HERE & (job.c.status == ENABLED)
_GLANCE = select(
    exists().where(_ENABLED, job.c.by_clock.is_(True), job.c.fired_until < bindparam("until")),
    exists().where(task.c.region == bindparam("region"), task.c.owner == TICKER),
    exists().where(_ENABLED, job.c.by_clock.is_(False)),
    exists().where(_HERE, job.c.queued.is_(True)),
)


def read_ticker_state(tx: Tx, region: str, until: int) -> TickerState:
    """Which kinds of work there are, in one statement of four index lookups."""
    return TickerState(*map(bool, tx.execute(_GLANCE, {"region": region, "until": until}).one()))


def read_jobs_behind(tx: Tx, region: str, until: int, limit: int) -> list[JobRow]:
    """Enabled jobs not materialised up to this time, the most behind first, from ix_job_due."""
    return read_rows(
        tx,
        JobRow,
        select(job)
        .where(
            job.c.region == region,
            job.c.status == ENABLED,
            job.c.by_clock.is_(True),
            job.c.fired_until < until,
        )
        .order_by(job.c.fired_until)
        .limit(limit),
    )


def idle_after_completion(tx: Tx, region: str, limit: int) -> list[JobRow]:
    """Enabled jobs that fire after each completion and have no run under way."""
    active = exists().where(task.c.active_job_id == job.c.id)
    return read_rows(
        tx,
        JobRow,
        select(job)
        .where(
            job.c.region == region,
            job.c.status == ENABLED,
            job.c.by_clock.is_(False),
            job.c.fired_until < FOREVER,
            ~active,
        )
        .limit(limit),
    )


def read_jobs_with_queue(tx: Tx, region: str) -> list[int]:
    """Jobs that have queued runs, from ix_job_queued."""
    rows = tx.execute(select(job.c.id).where(job.c.region == region, job.c.queued.is_(True)))
    return list(rows.scalars())


def advance(tx: Tx, row: JobRow, until: int) -> bool:
    """Set fired_until. False if the job has changed since it was read."""
    changed = tx.execute(
        update(job)
        .where(
            job.c.id == row.id,
            job.c.version == row.version,
            job.c.fired_until == row.fired_until,
        )
        .values(fired_until=until)
    ).rowcount
    return changed == 1


def begin_decision(tx: Tx, job_id: int) -> JobRow:
    """Raise a job's decision number and return the job: no one else decides before the commit."""
    return begin_decisions(tx, [job_id])[job_id]


def begin_decisions(tx: Tx, job_ids: Sequence[int]) -> dict[int, JobRow]:
    """The same for many jobs. RaceLost if another decider has changed one of them."""
    rows = rows_of(tx, job_ids)
    read = [(row.id, row.decision) for row in rows.values()]
    changed = tx.execute(
        update(job)
        # The ids select the index entries, the pairs compare the decision numbers.
        .where(job.c.id.in_(sorted(rows)), tuple_(job.c.id, job.c.decision).in_(read))
        .values(decision=job.c.decision + 1)
    ).rowcount
    if changed != len(job_ids):
        raise RaceLost
    return rows


def record_queues(tx: Tx, rows: Iterable[tuple[JobRow, bool]]) -> None:
    """Record which jobs have queued runs. Part of their decisions."""
    moved: dict[bool, list[int]] = {True: [], False: []}
    for row, queued in rows:
        if row.queued != queued:
            moved[queued].append(row.id)
    for queued, ids in moved.items():
        if ids:
            tx.execute(update(job).where(job.c.id.in_(ids)).values(queued=queued))


def next_planned(tx: Tx, job_ids: list[int]) -> dict[int, int]:
    """When each of these jobs fires next, as far as it is materialised."""
    rows = tx.execute(
        select(task.c.active_job_id, func.min(task.c.scheduled_at))
        .where(task.c.active_job_id.in_(job_ids), task.c.scheduled_at > tx.now)
        .group_by(task.c.active_job_id)
    )
    return {row[0]: row[1] for row in rows}


def unique_name(region: str, name: str) -> str:
    return f"{region}/{name}"


def _free_name(tx: Tx, region: str, name: str) -> None:
    if tx.execute(select(job.c.id).where(job.c.unique_name == unique_name(region, name))).first():
        raise NameTaken(name=name)


def _as_id(key: int | str) -> int | None:
    text = str(key)
    if not (text.isascii() and text.isdigit()):
        return None
    return number if (number := int(text)) <= LARGEST_ID else None
