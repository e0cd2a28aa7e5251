"""`drumline batch submit --dry-run`: check all targets and preview the change of the first ones.

For a preview a worker runs a task in which the handler captures the target's state before and after
the change without making it (see `drumline.handlers.preview`). The batch itself is not written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from drumline.cli import output
from drumline.command_layer import param_schema, store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Timeout, Type, as_json
from drumline.command_layer.targets import Target
from drumline.commands.batch.load import BatchFields, BatchLoad, Count, Targets, timeout_ms
from drumline.domain.preview import ASYNC_TYPE, SYNC_TYPE, TARGET_TYPE, PreviewParam
from drumline.domain.states import FINISHED
from drumline.domain.task import BatchInfo
from drumline.errors import NotReachable

if TYPE_CHECKING:
    from drumline.client.chunks import Chunk
    from drumline.client.client import Client
    from drumline.domain.policy import HandlerSpec
    from drumline.store.tx import Tx

PREVIEWS = 5
MAX_PREVIEWS = 20
WAIT_SECONDS = 10.0
"""How long to wait for a preview in addition to the handler's timeout."""


class BatchChecked(Answer, frozen=True, kw_only=True):
    """The handler of a batch, and how many of its targets were checked."""

    type: str
    target_type: str
    captures: bool
    """Whether the handler can tell what it would change."""
    checked: int


class BatchPreviewed(Answer, frozen=True, kw_only=True):
    """The tasks whose results are the previews, and their timeout."""

    task_ids: list[int]
    seconds: float


class BatchCheck(QueryCommand, frozen=True, kw_only=True):
    """Check targets as a submission would. Nothing is written."""

    name: ClassVar[str] = "batch.check"

    type: Type
    target_type: Type | None = None
    targets: Targets = ()
    count: Count = 0
    param: Any = None

    def answer(self, context: Context) -> BatchChecked:
        region = context.settings.region
        spec = context.db.read(
            lambda tx: store.handlers.find(tx, region, self.type, self.target_type)
        )
        _check(spec, self.targets, self.param)
        if not self.targets:
            param_schema.require(spec.schema, self.param)
        return BatchChecked(
            type=spec.type,
            target_type=spec.target_type,
            captures=spec.captures,
            checked=len(self.targets) or self.count,
        )


class BatchPreview(BatchFields, frozen=True, kw_only=True):
    """Schedule a task for each target whose result is the change that the handler would make."""

    name: ClassVar[str] = "batch.preview"

    targets: Annotated[tuple[Target, ...], Meta(min_length=1, max_length=MAX_PREVIEWS)]
    param: Any = None
    timeout: Timeout | None = None

    def change(self, tx: Tx, context: Context) -> BatchPreviewed:
        region = context.settings.region
        spec = store.handlers.find(tx, region, self.type, self.target_type)
        _check(spec, self.targets, self.param)
        batch = BatchInfo(
            id=0, name=self.batch_name, batch_type=spec.type, target_type=spec.target_type,
            creator=self.creator or context.actor or None, cmdb_service=self.cmdb_service,
            env=self.env, region=region, az=self.az, extra_info=self.extra_info,
        )  # fmt: skip
        ids = []
        for target in self.targets:
            param = PreviewParam(
                type=spec.type,
                target_type=spec.target_type,
                batch=batch,
                target_id=target.target_id,
                target_name=target.target_name,
                target_env=target.target_env,
                param=self.param if target.param is None else target.param,
            )
            values = {
                "type": ASYNC_TYPE if spec.is_async else SYNC_TYPE,
                "target_type": TARGET_TYPE,
                "param": as_json(param),
                "env": self.env,
                "timeout_ms": timeout_ms(self.timeout, spec),
            }
            row = store.tasks.new_row(tx.now, region, values)
            ids.append(store.tasks.add_one(tx, row))
        return BatchPreviewed(task_ids=ids, seconds=timeout_ms(self.timeout, spec) / 1000)


def _check(spec: HandlerSpec, targets: tuple[Target, ...], param: Any) -> None:
    """Check targets as `batch.load` does."""
    load = BatchLoad(batch_id=1, targets=targets, param=param)
    for index, target in enumerate(targets):
        load.target_values(index, target, spec)


# --- the CLI half --------------------------------------------------------------------------------


def dry_run(
    client: Client,
    about: Mapping[str, Any],
    work: Mapping[str, Any],
    chunks: Iterator[Chunk],
) -> int:
    """Check all targets, have the handler preview the first ones, and print the result."""
    kind = {name: about[name] for name in ("type", "target_type")}
    first: list[msgspec.Raw] = []
    total, checked = 0, {}
    for chunk in chunks:
        with chunk.naming_source():
            arguments = {**kind, "param": work["param"], **chunk.arguments}
            checked = client.call("batch.check", **arguments)
        total += checked["checked"]
        if len(first) < PREVIEWS:
            packed = chunk.arguments.get("targets") or [msgspec.Raw(_NO_FIELDS)]
            first += packed[: PREVIEWS - len(first)]
    previews = _preview(client, about, work, first) if checked["captures"] else []
    answer = {
        "dry_run": True, "tasks": total, "type": checked["type"],
        "target_type": checked["target_type"], "captures": checked["captures"], "targets": previews,
    }  # fmt: skip
    output.print_result(answer, "\n".join(_lines(answer)))
    return 1 if any(preview["error"] for preview in previews) else 0


_NO_FIELDS = msgspec.msgpack.encode({})


def _preview(
    client: Client, about: Mapping[str, Any], work: Mapping[str, Any], first: list[msgspec.Raw]
) -> list[dict[str, Any]]:
    """Have workers preview the targets, and wait for their results."""
    sent = {**about, "targets": first, "param": work["param"], "timeout": work["timeout"]}
    scheduled = client.call("batch.preview", **sent)
    deadline = time.monotonic() + scheduled["seconds"] + WAIT_SECONDS
    previews = []
    for raw, task_id in zip(first, scheduled["task_ids"], strict=True):
        target = msgspec.msgpack.decode(raw, type=Target)
        task = _wait_for_task(client, task_id, deadline)
        result = task["result"] or {}
        previews.append(
            {
                "target_id": target.target_id,
                "target_name": target.target_name,
                "before": result.get("before"),
                "after": result.get("after"),
                "finished": result.get("finished", False),
                "error": None if task["status"] == "success" else task["info"] or task["status"],
            }
        )
    return previews


def _wait_for_task(client: Client, task_id: int, deadline: float) -> dict[str, Any]:
    from drumline.client.polling import poll

    seconds = deadline - time.monotonic()
    for task in poll(lambda: client.call("task.show", task_id=task_id), seconds):
        if task["status"] in FINISHED:
            return task
    client.call("task.cancel", task_id=task_id, force=True)
    raise NotReachable(what="A worker", reason=task["why"] or "the preview did not end in time")


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    tasks = output.plural(answer["tasks"], "task")
    work = f"{tasks} of type {answer['type']} on {answer['target_type']}"
    yield f"dry run: {work}; nothing was changed"
    if not answer["captures"]:
        yield "the handler cannot tell what it would change; only the parameters were checked"
    for each in answer["targets"]:
        yield f"{output.printable(each['target_name'] or each['target_id'] or '-')}:"
        if each["error"]:
            yield f"  error   {output.printable(each['error'].partition(chr(10))[0])}"
            continue
        yield f"  before  {output.printable(output.format_value(each['before']))}"
        yield f"  after   {output.printable(output.format_value(each['after']))}"
        if each["finished"]:
            yield "  already done; the handler would change nothing"
    rest = answer["tasks"] - len(answer["targets"])
    if answer["captures"] and rest:
        yield f"and {rest} more"
