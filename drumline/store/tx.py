"""One transaction, and the batch counters that it owes."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, CursorResult

from drumline.domain.alarms import WebhooksByEvent
from drumline.domain.states import Phase, TaskState
from drumline.store.dialects import Dialect

NO_HOOKS: WebhooksByEvent = MappingProxyType({})


class Tx:
    """What a query needs: a connection inside a transaction, and the time it happens at."""

    def __init__(
        self, connection: Connection, dialect: Dialect, now: int, hooks: WebhooksByEvent = NO_HOOKS
    ) -> None:
        self.connection = connection
        self.dialect = dialect
        self.now = now
        self.hooks = hooks
        self.execute = connection.execute
        self.owed: dict[int, Counter[TaskState]] = {}
        self.phases: dict[int, set[Phase]] = {}

    def record_counter_change(
        self, batch_id: int | None, source: TaskState, target: TaskState, count: int
    ) -> None:
        """Remember that tasks of a batch moved, to be counted before the commit.

        Batches come last in the order of locks, so all of a transaction's moves are counted at
        once, in ascending order, by `drumline.store.batch.batches.apply_counter_changes`.
        """
        if batch_id is not None and count:
            owed = self.owed.setdefault(batch_id, Counter())
            owed[source] -= count
            owed[target] += count

    def require(self, batch_id: int | None, phase: Phase) -> None:
        """Commit only if the batch is in this phase when its counters are paid."""
        if batch_id is not None:
            self.phases.setdefault(batch_id, set()).add(phase)


def new_id(inserted: CursorResult[Any]) -> int:
    """The id that the database gave to an inserted row."""
    key = inserted.inserted_primary_key
    if key is None:
        raise LookupError("the insert gave no id")
    return int(key[0])
