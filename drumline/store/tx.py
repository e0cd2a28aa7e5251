"""One transaction, and the changes of batch counters that it makes at its end."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, CursorResult

from drumline.domain.alarms import WebhooksByEvent
from drumline.domain.states import Phase, TaskState
from drumline.store.dialects import Dialect

NO_HOOKS: WebhooksByEvent = MappingProxyType({})


class RaceLost(Exception):
    """A write changed fewer rows than it should: another process changed some of them first."""


class Tx:
    """What a query needs: a connection inside a transaction, and the transaction's time."""

    def __init__(
        self, connection: Connection, dialect: Dialect, now: int, hooks: WebhooksByEvent = NO_HOOKS
    ) -> None:
        self.connection = connection
        self.dialect = dialect
        self.now = now
        self.hooks = hooks
        self.execute = connection.execute
        self.counter_changes: dict[int, Counter[TaskState]] = {}
        self.required_phases: dict[int, set[Phase]] = {}

    def record_counter_change(
        self, batch_id: int | None, source: TaskState, target: TaskState, count: int
    ) -> None:
        """Record that tasks of a batch changed state. The counters change before the commit.

        Batches come last in the lock order, so `batches.apply_counter_changes` writes all changes
        of a transaction at its end, in ascending order of the batches.
        """
        if batch_id is not None and count:
            changes = self.counter_changes.setdefault(batch_id, Counter())
            changes[source] -= count
            changes[target] += count

    def require_phase(self, batch_id: int | None, phase: Phase) -> None:
        """Commit only if the batch is in this phase when its counters change."""
        if batch_id is not None:
            self.required_phases.setdefault(batch_id, set()).add(phase)


def new_id(inserted: CursorResult[Any]) -> int:
    """The id that the database gave to an inserted row."""
    key = inserted.inserted_primary_key
    if key is None:
        raise LookupError("the insert gave no id")
    return int(key[0])
