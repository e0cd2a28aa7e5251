"""The scan: the due tasks, in the order in which they should start."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    BindParameter,
    CompoundSelect,
    Integer,
    Select,
    bindparam,
    func,
    literal_column,
    select,
    union_all,
)

from drumline.domain.policy import Retry
from drumline.domain.states import TaskState
from drumline.domain.task import DueTask, RunInfo, TaskBody, encode_task_body
from drumline.store.batch import batches
from drumline.store.rows import TaskRow
from drumline.store.tables import ANYONE, task
from drumline.store.tx import Tx

PRIORITIES = range(9, -1, -1)
"""From the highest to the lowest. Few enough for one range of ix_task_queue per priority."""

_decode_retry = msgspec.json.Decoder(Retry).decode


class Cursor(NamedTuple):
    """The position of a scan: after this task, in the order in which tasks start."""

    priority: int
    due_at: int
    id: int


def ids(
    tx: Tx, region: str, until: int, after: Cursor | None, limit: int
) -> list[tuple[Cursor, int]]:
    """The next waiting tasks in order, with their versions: highest priority, then oldest.

    One range of ix_task_queue per priority, so that the scan never walks over future tasks or a
    backlog of lower priority. Each part of the union reads at most `limit` entries.
    """
    places = {"region": region, "until": until, "limit": limit}
    if after is not None:
        places |= {"after_due": after.due_at, "after_id": after.id}
    statement = _due_statement(None if after is None else after.priority)
    found = [_unpack_id(text) for text in tx.execute(statement, places).scalars()]
    found.sort(key=lambda row: (-row[0], row[1], row[2]))
    return [(Cursor(*row[:3]), row[3]) for row in found[:limit]]


@cache
def _due_statement(after_priority: int | None) -> CompoundSelect[Any]:
    """Built once per priority of the cursor: building it took most of the time of an idle scan."""
    parts = []
    limit: BindParameter[int] = bindparam("limit", type_=Integer)
    for priority in PRIORITIES:
        if after_priority is not None and priority > after_priority:
            continue
        level = waiting(priority)
        if priority == after_priority:
            # Two ranges instead of one comparison of pairs: MariaDB would walk the latter.
            same = level.where(
                task.c.due_at == bindparam("after_due"), task.c.id > bindparam("after_id")
            )
            parts.append(same.order_by(task.c.id).limit(limit).subquery())
            level = level.where(task.c.due_at > bindparam("after_due"))
        level = level.where(task.c.due_at <= bindparam("until"))
        parts.append(level.order_by(task.c.due_at, task.c.id).limit(limit).subquery())
    return union_all(*(select(part.c.packed) for part in parts))


def waiting(priority: int) -> Select[Any]:
    packed = func.json_array(task.c.priority, task.c.due_at, task.c.id, task.c.version)
    return select(packed.label("packed")).where(
        task.c.region == bindparam("region"),
        task.c.owner == ANYONE,
        task.c.priority == literal_column(str(priority)),
    )


_unpack_id = msgspec.json.Decoder(tuple[int, int, int, int]).decode


class _DueRow(msgspec.Struct, array_like=True):
    """A row of the scan. Its fields are the columns that are read, in this order."""

    id: int
    version: int
    status: TaskState
    type: str
    target_type: str
    priority: int
    due_at: int
    timeout_ms: int
    batch_id: int | None
    attempt: int
    retry_time: int
    failures: int
    deaths: int
    env: str | None
    retry: str | None
    job_id: int | None
    region: str
    target_id: str | None
    target_name: str | None
    target_env: str | None
    instance_id: str | None
    param: str | None
    before_update: str | None
    after_update: str | None
    scheduled_at: int | None
    run_attempt: int | None
    trace_id: str | None


# The database packs each row into one JSON text, and one call unpacks it: PyMySQL takes 1.5 us of
# Python for every column, which for this many was 50 us a task, more than all else in the scan.
_PACKED = func.json_array(*(task.c[name] for name in _DueRow.__struct_fields__))
_LOAD = select(_PACKED).where(
    task.c.id.in_(bindparam("ids", expanding=True)), task.c.owner == ANYONE
)
_unpack = msgspec.json.Decoder(_DueRow).decode


def load(tx: Tx, ids: Sequence[int], known: dict[int, bytes]) -> list[DueTask]:
    """The due tasks with these ids. `known` caches the encoded batches."""
    rows = [_unpack(text) for text in tx.execute(_LOAD, {"ids": ids}).scalars()]
    missing = {row.batch_id for row in rows if row.batch_id is not None} - known.keys()
    if missing:
        facts = batches.read_infos(tx, sorted(missing))
        known.update({i: msgspec.msgpack.encode(fact) for i, fact in facts.items()})
    return [_due(row, known) for row in rows]


def _due(row: _DueRow, known: dict[int, bytes]) -> DueTask:
    body = TaskBody(
        region=row.region,
        target_id=row.target_id,
        target_name=row.target_name,
        target_env=row.target_env,
        instance_id=row.instance_id,
        param=row.param,
        before_update=row.before_update,
        after_update=row.after_update,
        batch=None if row.batch_id is None else known.get(row.batch_id),
        run=None if row.job_id is None else _run_facts(row),
    )
    return DueTask(
        id=row.id,
        version=row.version,
        status=row.status,
        type=row.type,
        target_type=row.target_type,
        priority=row.priority,
        due_at=row.due_at,
        timeout_ms=row.timeout_ms,
        batch_id=row.batch_id,
        attempt=row.attempt,
        retry_time=row.retry_time,
        failures=row.failures,
        deaths=row.deaths,
        env=row.env,
        retry=None if row.retry is None else _decode_retry(row.retry),
        job_id=row.job_id,
        body=encode_task_body(body),
    )


def _run_facts(row: _DueRow) -> bytes:
    """The parts of a firing that a handler is shown, encoded."""
    facts = RunInfo(
        row.job_id or 0, row.scheduled_at or 0, row.run_attempt or 1, row.trace_id or ""
    )
    return msgspec.msgpack.encode(facts)


def ahead_of(tx: Tx, row: TaskRow, most: int) -> int:
    """How many due tasks start before this one, counted up to `most`."""
    found = 0
    for priority in PRIORITIES:
        if priority < row.priority or found >= most:
            break
        level = waiting(priority)
        if priority > row.priority:
            parts = [level.where(task.c.due_at <= tx.now)]
        else:
            same_time = level.where(task.c.due_at == row.due_at, task.c.id < row.id)
            parts = [level.where(task.c.due_at < row.due_at), same_time]
        for part in parts:
            some = part.limit(most - found).subquery()
            count = select(func.count()).select_from(some)
            found += tx.execute(count, {"region": row.region}).scalar_one()
            if found >= most:
                break
    return found
