"""`task.schedule_many`: schedule thousands of tasks in one message and one transaction.

Used by the SDK's `schedule_many`, and by `enqueue_many` inside the caller's own transaction.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from drumline.command_layer import param_schema, store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Priority, Text64, Timeout, Type, as_json, iso
from drumline.command_layer.targets import CHUNK_SIZE
from drumline.commands.batch.load import timeout_ms
from drumline.commands.task.schedule import Delay, Instance, due_time
from drumline.errors import Conflict, WrongUse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.store.tx import Tx


class TasksScheduled(Answer, frozen=True, kw_only=True):
    """The new tasks."""

    tasks: int
    due_at: Moment


class TaskScheduleMany(ChangeCommand, frozen=True, kw_only=True):
    """Schedule one task for each of `params`: all of them or none."""

    name: ClassVar[str] = "task.schedule_many"

    type: Type
    params: Annotated[tuple[Any, ...], Meta(min_length=1, max_length=CHUNK_SIZE)]
    """The parameter of each task."""
    instance_ids: tuple[Instance | None, ...] = ()
    """Empty, or one for each task; null for a task without an instance id."""
    target_type: Type | None = None
    at: str | None = None
    """The due time: ISO 8601 with a zone, or epoch seconds."""
    delay: Delay | None = None
    """Seconds from now until the due time."""
    priority: Priority = 5
    timeout: Timeout | None = None
    env: Text64 | None = None

    def change(self, tx: Tx, context: Context) -> TasksScheduled:
        region = context.settings.region
        spec = store.handlers.find(tx, region, self.type, self.target_type)
        due_at = due_time(tx.now, self.at, self.delay) or tx.now
        common = {
            "type": spec.type,
            "target_type": spec.target_type,
            "priority": self.priority,
            "timeout_ms": timeout_ms(self.timeout, spec),
            "due_at": due_at,
            "env": self.env,
        }
        rows = []
        for number, param in enumerate(self.params):
            try:
                param_schema.require(spec.schema, param)
                values = common | {"param": as_json(param)}
            except WrongUse as error:
                raise error.within(f"param {number}", index=number) from None
            rows.append(store.tasks.new_row(tx.now, region, values))
        if self.instance_ids:
            self._claim_instance_ids(tx, rows)
        store.tasks.add(tx, rows)
        return TasksScheduled(tasks=len(rows), due_at=iso(due_at))

    def _claim_instance_ids(self, tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
        """Give each task its instance id; refuse one that an unfinished task has."""
        if len(self.instance_ids) != len(rows):
            raise WrongUse(
                field="instance_ids",
                reason=f"{len(self.instance_ids)} for {len(rows)} tasks; "
                "give one for each, or none",
            )
        named = Counter(name for name in self.instance_ids if name is not None)
        if named and named.most_common(1)[0][1] > 1:
            raise Conflict(reason=f"instance id {named.most_common(1)[0][0]!r} is there twice")
        first = rows[0]
        keys = store.instances.claim_all(tx, first["region"], first["type"], list(named))
        for row, instance_id in zip(rows, self.instance_ids, strict=True):
            if instance_id is not None:
                row |= {"instance_id": instance_id, "unique_key": keys[instance_id]}
