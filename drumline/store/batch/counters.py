"""Comparing the counters of batches with their tasks, and the schema with the tables."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, inspect, select, update

from drumline.domain.states import TaskState
from drumline.store.columns import metadata
from drumline.store.database import Database
from drumline.store.tables import batch, count_column, task
from drumline.store.tx import Tx

Differences = dict[str, tuple[int, int]]
"""By state: the batch's counter, and the number of tasks."""


def next_batches(tx: Tx, after: int, limit: int) -> list[int]:
    """The next batches by id."""
    rows = tx.execute(
        select(batch.c.id).where(batch.c.id > after).order_by(batch.c.id).limit(limit)
    )
    return list(rows.scalars())


def differences(tx: Tx, batch_id: int) -> Differences:
    """The states whose counter differs from the number of tasks.

    In a reading transaction this may see a move between its two looks; `settled` does not.
    """
    columns = [batch.c[count_column(state)] for state in TaskState]
    row = tx.execute(select(batch.c.total, *columns).where(batch.c.id == batch_id)).first()
    if row is None:
        return {}
    counted: dict[str, int] = dict.fromkeys((state.value for state in TaskState), 0)
    found = tx.execute(
        select(task.c.status, func.count().label("tasks"))
        .where(task.c.batch_id == batch_id)
        .group_by(task.c.status)
    )
    counted.update({one.status: one.tasks for one in found})
    counters: dict[str, Any] = {
        state.value: row._mapping[count_column(state)] for state in TaskState
    } | {"total": row.total}
    counted["total"] = sum(counted.values())
    return {name: (counters[name], n) for name, n in counted.items() if counters.get(name, 0) != n}


def locked_differences(tx: Tx, batch_id: int) -> Differences:
    """The differences, with the batch row locked: no transaction can move its tasks meanwhile."""
    tx.execute(update(batch).where(batch.c.id == batch_id).values(version=batch.c.version))
    return differences(tx, batch_id)


def missing_from_schema(database: Database) -> list[str]:
    """Tables, columns and indexes that this version knows and the database does not have."""
    found = inspect(database.engine)
    missing = []
    tables = set(found.get_table_names())
    for table in metadata.sorted_tables:
        if table.name not in tables:
            missing.append(f"table {table.name}")
            continue
        columns = {column["name"] for column in found.get_columns(table.name)}
        missing += [f"column {table.name}.{c.name}" for c in table.c if c.name not in columns]
        indexes = {index["name"] for index in found.get_indexes(table.name)}
        missing += [f"index {i.name}" for i in table.indexes if i.name not in indexes]
    return missing
