"""`drumline task schedule`: schedule one task, at once or at a later time.

While a task with an instance id is unfinished, a second task of its type with that id is refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import click
from msgspec import Meta

from drumline.cli import gateway, groups, option_types, output
from drumline.command_layer import param_schema, store
from drumline.command_layer.answers import Answer, Moment
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Priority, Text64, Timeout, Type, as_json, iso, moment
from drumline.commands.batch.load import timeout_ms
from drumline.errors import StoreUnavailable, WrongUse

if TYPE_CHECKING:
    from drumline.store.tx import Tx

LONGEST_DELAY = 10 * 366 * 86400
INSTANCE_LIMIT = 126
"""An instance id of this length after the longest type name still fits into the key column."""

Instance = Annotated[str, Meta(min_length=1, max_length=INSTANCE_LIMIT)]
Delay = Annotated[float, Meta(ge=0, le=LONGEST_DELAY)]


class TaskScheduled(Answer, frozen=True, kw_only=True):
    """The new task."""

    task_id: int
    due_at: Moment


class TaskSchedule(ChangeCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "task.schedule"

    type: Type
    target_type: Type | None = None
    """Required if handlers of several target types serve the type."""
    instance_id: Instance | None = None
    """Refused if an unfinished task of the type has the same instance id."""
    at: str | None = None
    """The due time: ISO 8601 with a zone, or epoch seconds."""
    delay: Delay | None = None
    """Seconds from now until the due time."""
    param: Any = None
    priority: Priority = 5
    timeout: Timeout | None = None
    """Seconds that one attempt may take; by default, what the handler declares."""
    env: Text64 | None = None

    def change(self, tx: Tx, context: Context) -> TaskScheduled:
        region = context.settings.region
        due_at = due_time(tx.now, self.at, self.delay) or tx.now
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
        return TaskScheduled(task_id=task_id, due_at=iso(due_at))

    def after_commit(self, context: Context, answer: TaskScheduled) -> None:
        due_tasks = []
        if self.at is None and self.delay is None:
            with suppress(StoreUnavailable):  # the next scan finds the task
                due_tasks = context.db.read(
                    lambda tx: store.scan.load(tx, [answer.task_id], {}), tries=1
                )
        context.notify_scanner(due_tasks)


def due_time(now: int, at: str | None, delay: float | None) -> int | None:
    """The due time by the database's clock; None if neither `at` nor `delay` is given."""
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
@click.argument("type_", metavar="TYPE", type=option_types.TYPE)
@click.option(
    "--target-type",
    type=option_types.TYPE,
    help="Required if several target types have a handler for TYPE.",
)
@click.option("--instance", type=option_types.text(INSTANCE_LIMIT), metavar="ID",
              help="Refuse it if an unfinished task of TYPE has this instance id.")  # fmt: skip
@click.option("--at", type=option_types.point_in_time, metavar="TIME",
              help="Due time: ISO 8601 with a zone, or epoch seconds.")  # fmt: skip
@click.option("--in", "delay", type=option_types.seconds(0, LONGEST_DELAY), metavar="SECONDS",
              help="Due time, in seconds from now.")  # fmt: skip
@click.option("--param", type=option_types.json_value, metavar="JSON", help="The task's parameter.")
@click.option(
    "--priority", type=option_types.PRIORITY, help="0 to 9; 9 is the most urgent, the default is 5."
)
@click.option(
    "--timeout",
    type=option_types.TIMEOUT,
    metavar="SECONDS",
    help="Maximum duration of an attempt.",
)
@click.option("--env", type=option_types.text(64), help="Label: environment.")
@option_types.request_id
def schedule(
    type_: str, instance: str | None, delay: float | None, request_id: str | None, **options: Any
) -> None:
    """Schedule one task, at once or at a later time."""
    if options["at"] is not None and delay is not None:
        raise click.UsageError("give --at or --in, not both")
    arguments = {"type": type_, "instance_id": instance, "delay": delay, **options}
    answer = gateway.change("task.schedule", arguments, request_id)
    output.print_result(answer, f"task {answer['task_id']}: due {answer['due_at']}")
