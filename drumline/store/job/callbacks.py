"""Callbacks: how the target of a waiting run reports its outcome.

A token is an HMAC of one attempt's fence: it is valid for that attempt only and need not be
stored. It expires when the run leaves `waiting_callback`. A callback that comes before the run has
begun to wait is kept in the row and applied when it waits.
"""

from __future__ import annotations

import hmac
import random
import secrets
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import bindparam, case, insert, select, union_all, update
from sqlalchemy.exc import IntegrityError

from drumline.domain.jobs.callback import Callback
from drumline.domain.release import INFO_LIMIT, RESULT_LIMIT, RetryLimits, RunEnd, RunOutcome
from drumline.domain.states import Cause, TaskState
from drumline.errors import BadToken, Conflict, WrongUse
from drumline.store.batch.batches import PhaseChanged
from drumline.store.database import Database
from drumline.store.node import handlers
from drumline.store.rows import columns_of, read_first, read_rows
from drumline.store.tables import CALLER, result, secret, task
from drumline.store.task import held_tasks, runs
from drumline.store.task.scan import PRIORITIES
from drumline.store.tx import RaceLost, Tx

NAME = "callback"
ROOM = 1024
"""Bytes of a result that are left for what stands around a callback's."""


# --- tokens --------------------------------------------------------------------------------------


def secret_key(database: Database) -> bytes:
    """The secret that all nodes of this database share. Created at the first call."""
    found = database.read(stored_key)
    if found is None:
        made = secrets.token_hex(32)
        with suppress(IntegrityError):  # another process may be first
            database.write(lambda tx: tx.execute(insert(secret).values(name=NAME, value=made)))
        found = database.read(stored_key)
    return found or b""


def stored_key(tx: Tx) -> bytes | None:
    value = tx.execute(select(secret.c.value).where(secret.c.name == NAME)).scalar()
    return None if value is None else bytes.fromhex(value)


def token_for(key: bytes, task_id: int, fence: int) -> str:
    return hmac.new(key, b"%d:%d" % (task_id, fence), "sha256").hexdigest()


# --- received ------------------------------------------------------------------------------------


def receive(
    tx: Tx, region: str, task_id: int, token: str, callback: Callback, limits: RetryLimits
) -> str:
    """Receive a callback: refuse it, keep it, record progress, or end the run.

    Without the right token the answer is always BadToken, whether or not the run exists.
    """
    key, row = stored_key(tx), _row(tx, task_id, region)
    right = token_for(key or b"", task_id, 0 if row is None else row.fence)
    if not hmac.compare_digest(right.encode(), token.encode()) or key is None or row is None:
        raise BadToken
    status = row.status
    if status not in (TaskState.RUNNING, TaskState.WAITING_CALLBACK):
        raise Conflict(reason=f"task {task_id} is {status}; it waits for no callback")
    if row.callback is not None:
        raise Conflict(reason=f"task {task_id} has had its callback already")
    document = _checked(callback)
    if callback.status == "progress":
        _note(tx, row, {"info": callback.message or _as_text(callback.result)})
        return "noted"
    if status is TaskState.RUNNING:
        _note(tx, row, {"callback": document})
        return "kept"
    _end(tx, row, callback, limits)
    return "done"


class _WaitingRun(held_tasks.HeldRow, frozen=True):
    """A run that waits for its callback, or is about to."""

    callback: str | None
    region: str


class _AnsweredRun(_WaitingRun, frozen=True):
    """Such a run with the answer of its first call."""

    answer: str | None


_COLUMNS = columns_of(_WaitingRun)


def _row(tx: Tx, task_id: int, region: str | None = None) -> _AnsweredRun | None:
    statement = (
        select(*_COLUMNS, result.c.value.label("answer"))
        .outerjoin(result, result.c.task_id == task.c.id)
        .where(task.c.id == task_id)
    )
    if region is not None:
        statement = statement.where(task.c.region == region)
    return read_first(tx, _AnsweredRun, statement)


def _checked(callback: Callback) -> str:
    if callback.message is not None and len(callback.message.encode()) > INFO_LIMIT:
        raise WrongUse(field="message", reason=f"it has more than {INFO_LIMIT} bytes")
    if len(msgspec.json.encode(callback.result)) > RESULT_LIMIT - ROOM:
        raise WrongUse(
            field="result", reason=f"it has more than {RESULT_LIMIT - ROOM} bytes of JSON"
        )
    return msgspec.json.encode(callback).decode()


def _as_text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _note(tx: Tx, row: _AnsweredRun, values: dict[str, Any]) -> None:
    """Store a callback while the attempt is running or waiting.

    If the run has begun to wait since it was read, it becomes due at once, so that the reaper
    applies the callback.
    """
    if "callback" in values:
        waits = task.c.status == TaskState.WAITING_CALLBACK
        values["due_at"] = case((waits, tx.now), else_=task.c.due_at)
    changed = tx.execute(
        update(task)
        .where(
            task.c.id == row.id,
            task.c.fence == row.fence,
            task.c.callback.is_(None),
            task.c.status.in_([TaskState.RUNNING, TaskState.WAITING_CALLBACK]),
        )
        .values(**values)
    ).rowcount
    if changed != 1:
        raise RaceLost


def _end(tx: Tx, row: _AnsweredRun, callback: Callback, limits: RetryLimits) -> None:
    """End the run with the outcome that its target reports. The first call's answer is kept."""
    kept = None
    if callback.result is not None:
        kept = f'{{"answer":{row.answer or "null"},"callback":{_as_text(callback.result)}}}'
        if len(kept.encode()) > RESULT_LIMIT:
            kept = f'{{"answer":null,"callback":{_as_text(callback.result)}}}'
    if callback.status == "success":
        outcome = RunOutcome(RunEnd.SUCCESS, info=callback.message, result=kept)
    else:
        words = callback.message or "the target reported a failure"
        outcome = RunOutcome(RunEnd.ERROR, info=words, result=kept)
    specs = handlers.by_key(tx, row.region)
    runs.release_in(tx, CALLER, [held_tasks.finished_run(row, outcome, specs, "callback")], limits)


# --- settled later -------------------------------------------------------------------------------


def apply_kept(database: Database, ids: list[int], limits: RetryLimits) -> None:
    """End those of these runs that wait and have a kept callback."""

    def settle(tx: Tx, task_id: int) -> None:
        row = _row(tx, task_id)
        if row is None or row.status != TaskState.WAITING_CALLBACK or row.callback is None:
            return
        _end(tx, row, msgspec.json.decode(row.callback, type=Callback), limits)

    with_callback = database.read(
        lambda tx: tx.execute(
            select(task.c.id).where(
                task.c.id.in_(ids), task.c.owner == CALLER, task.c.callback.is_not(None)
            )
        ).scalars()
    )
    for task_id in with_callback:
        with suppress(RaceLost, PhaseChanged):  # cancelled, or settled by another, at this moment
            database.write(partial(settle, task_id=task_id))


_ANYONE_WAITS = (
    select(task.c.id).where(task.c.region == bindparam("region"), task.c.owner == CALLER).limit(1)
)


def expire(database: Database, region: str, limits: RetryLimits, limit: int = 500) -> int:
    """Fail runs whose callback is overdue, and end those whose callback came early and was kept."""

    def look(tx: Tx) -> list[_WaitingRun]:
        if tx.execute(_ANYONE_WAITS, {"region": region}).first() is None:
            return []  # the usual case, at the cost of one index entry
        parts = [
            select(task.c.id)
            .where(
                task.c.region == region,
                task.c.owner == CALLER,
                task.c.priority == priority,
                task.c.due_at <= tx.now,
            )
            .limit(limit)
            .subquery()
            for priority in PRIORITIES
        ]
        ids = list(tx.execute(union_all(*(select(part) for part in parts))).scalars())
        rows = select(*_COLUMNS).where(task.c.id.in_(ids))
        return read_rows(tx, _WaitingRun, rows) if ids else []

    rows = [row for row in database.read(look) if row.status == TaskState.WAITING_CALLBACK]
    late = [row for row in rows if row.callback is None]
    if early := [row.id for row in rows if row.callback is not None]:
        apply_kept(database, early, limits)
    if late:
        specs = database.read(partial(handlers.by_key, region=region))
        outcome = RunOutcome(
            RunEnd.ERROR, info="no callback came in time", cause=Cause.CALLBACK_TIMEOUT
        )
        ended = [held_tasks.finished_run(row, outcome, specs, "reaper") for row in late]
        lost = runs.release(database, CALLER, ended, limits, random.random())
        return len(ended) - len(lost)
    return 0
