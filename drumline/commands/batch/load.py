"""A batch in pieces: opened, loaded, then started, or discarded. No task starts before the end.

`drumline batch submit` and the SDK send large batches so. A load that is given up without a word
is pruned with what is old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from drumline.command_layer import param_schema, steering, store
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
from drumline.errors import Conflict, WrongUse

if TYPE_CHECKING:
    from drumline.domain.policy import HandlerSpec
    from drumline.store.tx import Tx

Targets = Annotated[tuple[Target, ...], Meta(max_length=CHUNK_SIZE)]
Count = Annotated[int, Meta(ge=0, le=CHUNK_SIZE)]

LONGEST_TIMEOUT_MS = 2**31 - 1


class BatchOpen(ChangeCommand, frozen=True, kw_only=True):
    """Begin a batch: everything but its tasks."""

    name: ClassVar[str] = "batch.open"

    batch_name: Annotated[str, Meta(min_length=1, max_length=255)]
    type: Type
    target_type: Type | None = None
    creator: Text128 | None = None
    cmdb_service: Text255 | None = None
    env: Text64 | None = None
    region: Text64 | None = None
    az: Text64 | None = None
    extra_info: Any = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        region = context.settings.region
        if self.region not in (None, region):
            raise WrongUse(
                reason=f"this node serves region {region!r}: submit a batch for "
                f"{self.region!r} to a node of that region"
            )
        spec = store.handlers.find(tx, region, self.type, self.target_type)
        batch_id = store.batches.create(
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
        return {"batch_id": batch_id, "tasks": 0}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        """Nothing can start yet."""


class BatchLoad(ChangeCommand, frozen=True, kw_only=True):
    """Add targets to a batch that is being loaded: a list of them, or a count of equal ones."""

    name: ClassVar[str] = "batch.load"

    batch_id: Id
    targets: Targets = ()
    count: Count = 0
    param: Any = None
    priority: Priority = 5
    timeout: Timeout | None = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        self.load(tx, context, store.tables.NOBODY)
        return {"batch_id": self.batch_id, "tasks": len(self.targets) or self.count}

    def load(self, tx: Tx, context: Context, owner: int) -> None:
        """Write the tasks. Their owner says whether they may start before the batch is opened."""
        if bool(self.targets) == bool(self.count):
            raise WrongUse(reason="a batch needs at least one target: a list of them, or a count")
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
            rows = [common | self.of(i, target, spec) for i, target in enumerate(self.targets)]
        store.tasks.add_to_batch(tx, row.id, rows)

    def of(self, index: int, target: Target, spec: HandlerSpec) -> dict[str, Any]:
        """What a target has of its own, checked."""
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

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        """Nothing can start yet."""


class BatchStart(ChangeCommand, frozen=True, kw_only=True):
    """All targets are there: let the batch run."""

    name: ClassVar[str] = "batch.start"

    batch_id: Id

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = store.batches.get(tx, self.batch_id, context.settings.region)
        if row.total == 0:
            raise WrongUse(reason="a batch needs at least one target")
        if not store.operations.open_batch(tx, row, spread=True):
            raise Conflict(reason=f"batch {row.id} is not being loaded any more")
        return {"batch_id": row.id, "tasks": row.total}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        steering.carry_out(context, answer["batch_id"])


class BatchDiscard(ChangeCommand, frozen=True, kw_only=True):
    """Give up a load: the batch was never there."""

    name: ClassVar[str] = "batch.discard"

    batch_id: Id

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        row = store.batches.get(tx, self.batch_id, context.settings.region)
        if not store.operations.discard(tx, row):
            raise Conflict(reason=f"batch {row.id} is not being loaded any more; cancel it instead")
        return {"batch_id": row.id, "discarded": row.total}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        steering.carry_out(context, answer["batch_id"])


def timeout_ms(asked: float | None, spec: HandlerSpec) -> int:
    """How long a task may take: what its submission says, or what its handler asks for."""
    return min(int((asked or spec.timeout) * 1000), LONGEST_TIMEOUT_MS)
