"""A large batch: opened, loaded in chunks, then started or discarded.

`drumline batch submit` and the SDK submit large batches this way. No task runs before the batch is
started. An abandoned load is deleted by retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from drumline.command_layer import batch_operations, param_schema, store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import (
    Id,
    Priority,
    Text64,
    Text128,
    Text255,
    Timeout,
    Type,
    as_json,
)
from drumline.command_layer.targets import CHUNK_SIZE, Target
from drumline.commands.batch.answers import BatchSubmitted
from drumline.errors import Conflict, WrongUse

if TYPE_CHECKING:
    from drumline.domain.policy import HandlerSpec
    from drumline.store.tx import Tx

Targets = Annotated[tuple[Target, ...], Meta(max_length=CHUNK_SIZE)]
Count = Annotated[int, Meta(ge=0, le=CHUNK_SIZE)]

LONGEST_TIMEOUT_MS = 2**31 - 1


class BatchDiscarded(Answer, frozen=True, kw_only=True):
    """How many tasks the discarded batch had."""

    batch_id: int
    discarded: int


class BatchFields(ChangeCommand, frozen=True, kw_only=True):
    """What a batch consists of beside its tasks."""

    batch_name: Annotated[str, Meta(min_length=1, max_length=255)]
    type: Type
    """The batch type: what to do with each target."""
    target_type: Type | None = None
    """Required if handlers of several target types serve the batch type."""
    creator: Text128 | None = None
    """By default, the name of the caller."""
    cmdb_service: Text255 | None = None
    env: Text64 | None = None
    region: Text64 | None = None
    """If given, it must be the region of the node."""
    az: Text64 | None = None
    extra_info: Any = None
    """Any data for the handler."""

    def create(self, tx: Tx, context: Context) -> int:
        """Write the batch without tasks. Returns its id."""
        region = context.settings.region
        if self.region not in (None, region):
            raise WrongUse(
                reason=f"this node serves region {region!r}: submit a batch for "
                f"{self.region!r} to a node of that region"
            )
        spec = store.handlers.find(tx, region, self.type, self.target_type)
        return store.batches.create(
            tx,
            {
                "region": region,
                "name": self.batch_name,
                "batch_type": spec.type,
                "target_type": spec.target_type,
                "creator": self.creator or context.actor or None,
                "cmdb_service": self.cmdb_service,
                "env": self.env,
                "az": self.az,
                "extra_info": as_json(self.extra_info),
            },
        )


class BatchOpen(BatchFields, frozen=True, kw_only=True):
    """Create a batch without tasks, to be loaded."""

    name: ClassVar[str] = "batch.open"

    def change(self, tx: Tx, context: Context) -> BatchSubmitted:
        return BatchSubmitted(batch_id=self.create(tx, context), tasks=0)

    def after_commit(self, context: Context, answer: BatchSubmitted) -> None:
        """The scanner is not notified: no task can start yet."""


class BatchLoad(ChangeCommand, frozen=True, kw_only=True):
    """Add tasks to a batch that is being loaded: one for each target, or `count` identical ones."""

    name: ClassVar[str] = "batch.load"

    batch_id: Id
    targets: Targets = ()
    count: Count = 0
    param: Any = None
    """The parameter of targets that have none of their own."""
    priority: Priority = 5
    timeout: Timeout | None = None
    """Seconds that one attempt may take; by default, what the handler declares."""

    def change(self, tx: Tx, context: Context) -> BatchSubmitted:
        self.load(tx, context, store.tables.NOBODY)
        return BatchSubmitted(batch_id=self.batch_id, tasks=len(self.targets) or self.count)

    def load(self, tx: Tx, context: Context, owner: int) -> None:
        """Write the tasks. With owner NOBODY they cannot start before the batch is opened."""
        if bool(self.targets) == bool(self.count):
            raise WrongUse(reason="a batch needs at least one target: either targets or a count")
        row = store.batches.get(tx, self.batch_id, context.settings.region)
        spec = store.handlers.find(tx, row.region, row.batch_type, row.target_type)
        common = store.tasks.new_row(
            tx.now,
            row.region,
            {
                "batch_id": row.id,
                "type": row.batch_type,
                "target_type": row.target_type,
                "env": row.env,
                "priority": self.priority,
                "timeout_ms": timeout_ms(self.timeout, spec),
                "owner": owner,
                "param": as_json(self.param),
            },
        )
        if self.count:
            param_schema.require(spec.schema, self.param)
            rows = [common] * self.count
        else:
            rows = [
                common | self.target_values(i, target, spec)
                for i, target in enumerate(self.targets)
            ]
        store.tasks.add_to_batch(tx, row.id, rows)

    def target_values(self, index: int, target: Target, spec: HandlerSpec) -> dict[str, Any]:
        """The columns in which a target's task differs from the others, checked."""
        try:
            param = self.param if target.param is None else target.param
            param_schema.require(spec.schema, param)
            values = {
                "target_id": target.target_id,
                "target_name": target.target_name,
                "target_env": target.target_env,
                "before_update": as_json(target.before_update),
                "after_update": as_json(target.after_update),
            }
            if target.param is not None:
                values["param"] = as_json(target.param)
        except WrongUse as error:
            raise error.within(f"target {index}", index=index) from None
        return values

    def after_commit(self, context: Context, answer: BatchSubmitted) -> None:
        """The scanner is not notified: no task can start yet."""


class BatchStart(ChangeCommand, frozen=True, kw_only=True):
    """Start a batch after all of its tasks have been loaded."""

    name: ClassVar[str] = "batch.start"

    batch_id: Id

    def change(self, tx: Tx, context: Context) -> BatchSubmitted:
        row = store.batches.get(tx, self.batch_id, context.settings.region)
        if row.total == 0:
            raise WrongUse(reason="a batch needs at least one target")
        if not store.operations.open_batch(tx, row, unowned=True):
            raise Conflict(reason=f"batch {row.id} is no longer being loaded")
        return BatchSubmitted(batch_id=row.id, tasks=row.total)

    def after_commit(self, context: Context, answer: BatchSubmitted) -> None:
        batch_operations.apply(context, answer.batch_id)


class BatchDiscard(ChangeCommand, frozen=True, kw_only=True):
    """Delete a batch that is still being loaded."""

    name: ClassVar[str] = "batch.discard"

    batch_id: Id

    def change(self, tx: Tx, context: Context) -> BatchDiscarded:
        row = store.batches.get(tx, self.batch_id, context.settings.region)
        if not store.operations.discard(tx, row):
            raise Conflict(reason=f"batch {row.id} is no longer being loaded; cancel it instead")
        return BatchDiscarded(batch_id=row.id, discarded=row.total)

    def after_commit(self, context: Context, answer: BatchDiscarded) -> None:
        batch_operations.apply(context, answer.batch_id)


def timeout_ms(asked: float | None, spec: HandlerSpec) -> int:
    """The timeout of an attempt: as submitted, or else what the handler declares."""
    return min(int((asked or spec.timeout) * 1000), LONGEST_TIMEOUT_MS)
