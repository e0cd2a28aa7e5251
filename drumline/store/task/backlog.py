"""The backlog, counted cheaply: from the counters of batches and a bounded number of tasks."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import func, select

from drumline.domain.states import FINISHED, TaskState
from drumline.store.tables import ANYONE, batch, count_column, task
from drumline.store.tx import Tx

MOST_BATCHES = 1000
MOST_TASKS = 10_000
"""Upper limits of the rows and index entries that one count reads."""


def count(tx: Tx, region: str) -> tuple[int, dict[str, int]]:
    """Unfinished batches, and unfinished tasks by status.

    Tasks of batches are counted exactly, by the batches' own counters. Tasks without a batch are
    counted among the first tasks that wait or run, so their number is exact only below MOST_TASKS.
    """
    unfinished = [state for state in TaskState if state not in FINISHED]
    open_batches = (
        select(*(batch.c[count_column(state)] for state in unfinished))
        .where(batch.c.region == region, batch.c.finished.is_(False))
        .order_by(batch.c.id)
        .limit(MOST_BATCHES)
        .subquery()
    )
    sums = [func.coalesce(func.sum(column), 0) for column in open_batches.c]
    batches, *counts = tx.execute(select(func.count(), *sums).select_from(open_batches)).one()
    found = Counter({state.value: int(n) for state, n in zip(unfinished, counts, strict=True)})
    for holder in (task.c.owner == ANYONE, task.c.owner > ANYONE):
        some = (
            select(task.c.status, task.c.batch_id)
            .where(task.c.region == region, holder)
            .limit(MOST_TASKS)
            .subquery()
        )
        rows = tx.execute(
            select(some.c.status, func.count().label("tasks"))
            .where(some.c.batch_id.is_(None))
            .group_by(some.c.status)
        )
        found.update({row.status: row.tasks for row in rows})
    return int(batches), dict(found)
