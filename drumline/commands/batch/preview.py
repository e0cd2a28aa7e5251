"""`drumline batch submit --dry-run`: all targets checked, and what would become of the first ones.

The handler looks at each of them as it would before it changes them, in a worker and as a task of
its own (see `drumline.handlers.preview`); nothing of the batch itself is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from drumline.cli import terminal
from drumline.command_layer import param_schema, store
from drumline.command_layer.base import Context, QueryCommand
from drumline.command_layer.fields import Timeout, Type, as_json
from drumline.command_layer.targets import Target
from drumline.commands.batch.load import BatchLoad, BatchOpen, Count, Targets, timeout_ms
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
MOST = 20
PATIENCE = 10.0
"""Seconds that the workers may need beside the handler's own time."""


class BatchCheck(QueryCommand, frozen=True, kw_only=True):
    """Would these targets be taken? Nothing is written."""

    name: ClassVar[str] = "batch.check"

    type: Type
    target_type: Type | None = None
    targets: Targets = ()
    count: Count = 0
    param: Any = None

    def answer(self, context: Context) -> dict[str, Any]:
        region = context.settings.region
        spec = context.db.read(
            lambda tx: store.handlers.find(tx, region, self.type, self.target_type)
        )
        _check(spec, self.targets, self.param)
        if not self.targets:
            param_schema.require(spec.schema, self.param)
        return {
            "type": spec.type,
            "target_type": spec.target_type,
            "captures": spec.captures,
            "checked": len(self.targets) or self.count,
        }


class BatchPreview(BatchOpen, frozen=True, kw_only=True):
    """Have the handler look at some targets: a task for each, whose result says what it found."""

    name: ClassVar[str] = "batch.preview"

    targets: Annotated[tuple[Target, ...], Meta(min_length=1, max_length=MOST)]
    param: Any = None
    timeout: Timeout | None = None

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
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
        return {"task_ids": ids, "seconds": timeout_ms(self.timeout, spec) / 1000}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        context.ring()


def _check(spec: HandlerSpec, targets: tuple[Target, ...], param: Any) -> None:
    """As a load would."""
    load = BatchLoad(batch_id=1, targets=targets, param=param)
    for index, target in enumerate(targets):
        load.of(index, target, spec)


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
            found = chunk.arguments.get("targets") or [msgspec.Raw(_PLAIN)]
            first += found[: PREVIEWS - len(first)]
    looked = _look(client, about, work, first) if checked["captures"] else []
    answer = {
        "dry_run": True, "tasks": total, "type": checked["type"],
        "target_type": checked["target_type"], "captures": checked["captures"], "targets": looked,
    }  # fmt: skip
    terminal.answer(answer, "\n".join(_lines(answer)))
    return 1 if any(each["error"] for each in looked) else 0


_PLAIN = msgspec.msgpack.encode({})


def _look(
    client: Client, about: Mapping[str, Any], work: Mapping[str, Any], first: list[msgspec.Raw]
) -> list[dict[str, Any]]:
    """Have the handler look, and wait for what it sees."""
    sent = {**about, "targets": first, "param": work["param"], "timeout": work["timeout"]}
    asked = client.call("batch.preview", **sent)
    until = time.monotonic() + asked["seconds"] + PATIENCE
    shown = []
    for raw, task_id in zip(first, asked["task_ids"], strict=True):
        target = msgspec.msgpack.decode(raw, type=Target)
        task = _ended(client, task_id, until)
        found = task["result"] or {}
        shown.append(
            {
                "target_id": target.target_id,
                "target_name": target.target_name,
                "before": found.get("before"),
                "after": found.get("after"),
                "finished": found.get("finished", False),
                "error": None if task["status"] == "success" else task["info"] or task["status"],
            }
        )
    return shown


def _ended(client: Client, task_id: int, until: float) -> dict[str, Any]:
    from drumline.client.polling import poll

    for task in poll(lambda: client.call("task.show", task_id=task_id), until - time.monotonic()):
        if task["status"] in FINISHED:
            return task
    client.call("task.cancel", task_id=task_id, force=True)
    raise NotReachable(what="A worker", reason=task["why"] or "none has previewed in time")


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    tasks = terminal.counted(answer["tasks"], "task")
    yield f"dry run: {tasks} of type {answer['type']} on {answer['target_type']}; nothing was done"
    if not answer["captures"]:
        yield "its handler does not tell beforehand what it changes; the parameters were checked"
    for each in answer["targets"]:
        yield f"{terminal.printable(each['target_name'] or each['target_id'] or '-')}:"
        if each["error"]:
            yield f"  error   {terminal.printable(each['error'].partition(chr(10))[0])}"
            continue
        yield f"  before  {terminal.printable(terminal.shown(each['before']))}"
        yield f"  after   {terminal.printable(terminal.shown(each['after']))}"
        if each["finished"]:
            yield "  it is so already and would be left alone"
    rest = answer["tasks"] - len(answer["targets"])
    if answer["captures"] and rest:
        yield f"and {rest} more"
