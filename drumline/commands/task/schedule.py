"""`drumline task schedule`: one task, now or at a time.

An instance id makes it unique while it is unfinished: a second task of the type with the same id
is refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import groups, terminal
from drumline.command_layer import param_schema, store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Priority, Text64, Timeout, Type, as_json, iso, moment
from drumline.commands.batch.load import timeout_ms
from drumline.errors import StoreUnavailable, WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx

LONGEST_DELAY = 10 * 366 * 86400
INSTANCE_LIMIT = 126
"""With the longest name of a type in front of it, an instance id still fits into its key."""

Instance = Annotated[str, Meta(min_length=1, max_length=INSTANCE_LIMIT)]
Delay = Annotated[float, Meta(ge=0, le=LONGEST_DELAY)]


class TaskSchedule(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.schedule"

    type: Type
    target_type: Type | None = None
    instance_id: Instance | None = None
    at: str | None = None
    """ISO 8601 with a zone, or epoch seconds."""
    delay: Delay | None = None
    """Seconds from now."""
    param: Any = None
    priority: Priority = 5
    timeout: Timeout | None = None
    env: Text64 | None = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        region = context.settings.region
        due_at = due(tx.now, self.at, self.delay) or tx.now
        spec = store.handlers.find(tx, region, self.type, self.target_type)
        param_schema.require(spec.schema, self.param)
        values: dict[str, Any] = {
            "type": spec.type,
            "target_type": spec.target_type,
            "instance_id": self.instance_id,
            "param": as_json(self.param),
            "priority": self.priority,
            "timeout_ms": timeout_ms(self.timeout, spec),
            "due_at": due_at,
            "env": self.env,
        }
        if self.instance_id is not None:
            values["unique_key"] = store.instances.claim(tx, region, spec.type, self.instance_id)
        task_id = store.tasks.add_one(tx, store.tasks.new_row(tx.now, region, values))
        return {"task_id": task_id, "due_at": iso(due_at)}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        ids = [answer["task_id"]]
        dues = []
        if self.at is None and self.delay is None:
            with suppress(StoreUnavailable):  # the scan will find it
                dues = context.db.read(lambda tx: store.scan.load(tx, ids, {}), tries=1)
        context.ring(dues)


def due(now: int, at: str | None, delay: float | None) -> int | None:
    """The time that was meant, on the database's clock."""
    if at is not None and delay is not None:
        raise WrongUse(reason="give a time or a delay, not both")
    if delay is not None:
        return now + int(delay * 1_000_000)
    return None if at is None else moment(at)


@groups.task.command(
    "schedule",
    epilog="""
        drumline task schedule demo.echo --param '{"hello": "you"}'
        drumline task schedule report.send --instance june --at 2030-07-01T06:00:00+02:00
        drumline task schedule demo.sleep --in 60 --priority 9 --timeout 5
    """,
)
@click.argument("type_", metavar="TYPE", type=terminal.TYPE)
@click.option("--target-type", type=terminal.TYPE, help="Needed if several serve the type.")
@click.option("--instance", type=terminal.text(INSTANCE_LIMIT), metavar="ID",
              help="At most one unfinished task of the type has this id.")  # fmt: skip
@click.option("--at", type=terminal.point_in_time, metavar="TIME",
              help="ISO 8601 with a zone, or epoch seconds.")  # fmt: skip
@click.option("--in", "delay", type=terminal.seconds(0, LONGEST_DELAY), metavar="SECONDS",
              help="From now.")  # fmt: skip
@click.option("--param", type=terminal.document, metavar="JSON")
@click.option("--priority", type=terminal.PRIORITY, help="9 is the most urgent, 5 is usual.")
@click.option("--timeout", type=terminal.TIMEOUT, metavar="SECONDS", help="How long it may take.")
@click.option("--env", type=terminal.text(64), help="Label: environment.")
@terminal.changes
def schedule(
    type_: str, instance: str | None, delay: float | None, request_id: str | None, **options: Any
) -> None:
    """Schedule one task: now, at a time, or after a while."""
    if options["at"] is not None and delay is not None:
        raise click.UsageError("give --at or --in, not both")
    arguments = {"type": type_, "instance_id": instance, "delay": delay, **options}
    done = terminal.change("task.schedule", arguments, request_id)
    terminal.answer(done, f"task {done['task_id']}: due {done['due_at']}")
