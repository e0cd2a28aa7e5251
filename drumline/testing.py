"""Test handlers without processes and without a database.

    from drumline.testing import run

    def test_send():
        outcome = run(send, {"to": "a@b.c"}, attempt=2)
        assert outcome.result == {"sent": True}

`run` takes a handler in any form (a function with or without its decorator, a handler class or
object, or the name of a registered type) and runs the same steps as a worker: capture, check
whether it is finished, process; or rollback. Values that a worker stores as JSON are converted to
JSON and back here too. Timeouts are not enforced and nothing is retried: each call of `run` is one
attempt.

    done = run(Switch, target_id="db-1", param={"az": "b"})
    assert done.steps == ("build_param", "is_finished", "process")
    undone = run(Switch, target_id="db-1", rollback=True, before_update=done.before)

An error of the handler is raised; with `catch=True` it is the outcome's `error`.

`run_sweep` does the same for a handler of sweeps: it runs the hooks, then every item in order, with
retries but without their delays.

    swept = run_sweep(touch, items=["a", "b", "c"])
    assert (swept.done, swept.failed, swept.stopped) == (3, {}, None)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from drumline.domain.policy import HandlerSpec
from drumline.domain.states import TaskState
from drumline.domain.sweeps.partition import HookParam
from drumline.domain.sweeps.states import SweepState, check_extra_change
from drumline.domain.task import BatchInfo, DueTask, TaskBody, encode_task_body
from drumline.errors import WrongUse
from drumline.handlers.base import (
    METHODS,
    FunctionHandler,
    Handler,
    RegisteredHandler,
    handler_specs,
)
from drumline.handlers.registry import registry
from drumline.handlers.sweep import Item, Later, RunningSweep, Sweep, encode_extra
from drumline.handlers.sweep_hooks import resolve, run_hook
from drumline.handlers.sweep_registry import PartitionHandler, sweep_handlers
from drumline.runner.execute import (
    TaskSteps,
    encode_result,
    run_steps,
    run_steps_async,
    task_steps,
    unpack_result,
)
from drumline.task import Task

__all__ = ["Outcome", "SweepOutcome", "run", "run_sweep"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one attempt."""

    result: Any = None
    """The return value of the handler, converted to JSON and back."""
    error: BaseException | None = None
    before: Any = None
    """The state that a rollback would restore: captured now, or passed to `run`."""
    after: Any = None
    steps: tuple[str, ...] = ()
    """The handler's methods in the order in which they were called."""
    wait: float | None = None
    """Seconds that the run waits for a callback, if the handler asked for one."""

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass
class _Recorder:
    """Calls a handler's methods and records their names."""

    handler: Handler
    steps: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            self.steps.append(name)
        return getattr(self.handler, name)


def run(
    handler: str | Callable[[Task], Any] | Handler | type[Handler],
    param: Any = None,
    *,
    type: str | None = None,
    target_type: str | None = None,
    target_id: str | None = None,
    target_name: str | None = None,
    target_env: str | None = None,
    instance_id: str | None = None,
    before_update: Any = None,
    after_update: Any = None,
    attempt: int = 1,
    rollback: bool = False,
    batch: BatchInfo | None = None,
    fence: int = 1,
    catch: bool = False,
) -> Outcome:
    """Run one attempt of one task. `type` selects one of the types that a class handler serves."""
    registered = _find_handler(handler, type, target_type)
    spec = registered.spec
    if rollback and not spec.rolls_back:
        raise WrongUse(reason=f"{spec.origin} has no rollback method")
    body = TaskBody(
        region="test" if batch is None or batch.region is None else batch.region,
        target_id=target_id,
        target_name=target_name,
        target_env=target_env,
        instance_id=instance_id,
        param=_json(param, "param"),
        before_update=_json(before_update, "before_update"),
        after_update=_json(after_update, "after_update"),
        batch=None if batch is None else msgspec.msgpack.encode(batch),
        run=None,
    )
    task = Task(
        DueTask(
            id=1,
            version=fence - 1,
            status=TaskState.ROLLBACK_PENDING if rollback else TaskState.PENDING,
            type=spec.type,
            target_type=spec.target_type,
            priority=5,
            due_at=0,
            timeout_ms=int(spec.timeout * 1000),
            batch_id=None if batch is None else batch.id,
            attempt=attempt - 1,
            retry_time=0,
            failures=0,
            deaths=0,
            env=None if batch is None else batch.env,
            retry=None,
            job_id=None,
            body=encode_task_body(body),
        ),
        ("http://drumline.test/api/v1/callbacks/1", "a-token") if spec.callbacks else None,
    )
    recorder = _Recorder(registered.handler)
    recorded: Any = recorder  # it has the methods of a handler
    steps = task_steps(task, RegisteredHandler(spec, recorded), capture=lambda before, after: True)
    result, error, wait = None, None, None
    try:
        value, wait = unpack_result(_run_all(steps, spec.is_async), task, registered)
        text = encode_result(value)
        result = None if text is None else msgspec.json.decode(text)
    except (Exception, SystemExit) as caught:
        if not catch:
            raise
        error = caught
    steps_taken = tuple(recorder.steps)
    return Outcome(result, error, task.before_update, task.after_update, steps_taken, wait)


def _find_handler(handler: Any, name: str | None, target_type: str | None) -> RegisteredHandler:
    """The handler, with its entry in the manifest."""
    if isinstance(handler, str):
        return _find_registered(handler, target_type)
    if isinstance(handler, type) and issubclass(handler, Handler):
        handler = handler()
    if not isinstance(handler, Handler):
        for spec in registry.manifest():
            if registry[spec.key].handler.process is handler:
                return registry[spec.key]
        handler = FunctionHandler(handler)
        handler.types = (name or "test",)
    if target_type or not getattr(handler, "target_type", None):
        handler.target_type = target_type or "test"
    specs = handler_specs(handler, f"{type(handler).__module__}:{type(handler).__qualname__}")
    for spec in specs:
        if name in (None, spec.type):
            return RegisteredHandler(spec, handler)
    served = ", ".join(spec.type for spec in specs)
    raise WrongUse(reason=f"the handler does not serve type {name!r}, but {served}")


def _find_registered(name: str, target_type: str | None) -> RegisteredHandler:
    specs = registry.manifest()
    matching = [s for s in specs if s.type == name and target_type in (None, s.target_type)]
    if len(matching) != 1:
        known = ", ".join(spec.key for spec in matching or specs) or "none"
        raise WrongUse(
            reason=f"{len(matching)} handlers are registered for type {name!r}"
            f" (their modules must be imported first); known: {known}"
        )
    return registry[matching[0].key]


def _json(value: Any, what: str) -> str | None:
    if value is None:
        return None
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongUse(reason=f"{what} does not fit into JSON: {error}") from None


def _run_all(steps: TaskSteps, is_async: bool) -> Any:
    if not is_async:
        return run_steps(steps)
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise WrongUse(
            reason="an event loop is running here: await asyncio.to_thread(run, …) instead"
        )
    return asyncio.run(run_steps_async(steps))


# --- sweeps --------------------------------------------------------------------------------------


@dataclass
class SweepOutcome:
    """The outcome of a sweep."""

    done: int = 0
    """Every index before this one is done."""
    failed: dict[int, BaseException] = field(default_factory=dict)
    log: list[tuple[int, str]] = field(default_factory=list)
    extra: Any = None
    stopped: str | None = None
    """The reason, if its handler stopped it."""
    waits: Later | None = None
    """The `Later` that `prepare` returned; no item was run then."""


def run_sweep(
    handler: str | Callable[[Item], Any] | Sweep | type[Sweep],
    total: int | None = None,
    *,
    items: Sequence[str] | None = None,
    extra: Any = None,
    parallel: int = 1,
    name: str = "test",
) -> SweepOutcome:
    """Run a sweep from its hooks to its last item. An error of a hook is raised."""
    if (total is None) == (items is None):
        raise WrongUse(reason="give either a total or items")
    count = len(items) if items is not None else total or 0
    spec, sweep = _find_sweep(handler)
    param = HookParam("create", 1, name, extra=encode_extra(extra), end=count)
    swept = SweepOutcome(extra=extra)
    for hook in ("create", "prepare"):
        ended = run_hook(sweep, msgspec.structs.replace(param, hook=hook), raises=True)
        if ended.extra is not None:
            swept.extra = msgspec.json.decode(ended.extra)
        if ended.waits or ended.retry_after is not None:
            swept.waits = Later(ended.retry_after)
            return swept
    running = _TestSweep(name, swept, parallel)
    retries = spec.sweep.item_retry.retries if spec.sweep else 0
    while swept.done < count and swept.stopped is None:
        text = None if items is None else items[swept.done]
        for attempt in range(1, retries + 2):
            try:
                resolve(sweep.process(Item(running, swept.done, text, attempt)))
                swept.failed.pop(swept.done, None)
                break
            except (Exception, SystemExit) as error:
                swept.failed[swept.done] = error
        swept.done += 1
    return swept


class _TestSweep(RunningSweep):
    """What the items of a sweep share in a test."""

    sweep_id, fence = 1, 1

    def __init__(self, name: str, swept: SweepOutcome, parallel: int) -> None:
        self.name = name
        self.swept = swept
        self.parallel = parallel

    @property
    def extra(self) -> Any:
        return self.swept.extra

    def change_extra(self, value: Any) -> None:
        check_extra_change(SweepState.RUNNING, self.parallel)
        self.swept.extra = msgspec.json.decode(encode_extra(value))

    def log(self, item: int, message: str) -> None:
        self.swept.log.append((item, message))

    def stop(self, reason: str) -> None:
        self.swept.stopped = reason


def _find_sweep(handler: Any) -> tuple[HandlerSpec, Sweep]:
    if isinstance(handler, type) and issubclass(handler, Sweep):
        handler = handler()
    if isinstance(handler, Sweep):
        (parts, _) = sweep_handlers(handler, f"{type(handler).__module__}", handler.process)
        return parts.spec, handler
    for spec in registry.manifest():
        found = registry[spec.key].handler
        if isinstance(found, PartitionHandler) and handler in (spec.type, found.sweep.process):
            return spec, found.sweep
    raise WrongUse(reason=f"{handler!r} is not a registered handler of sweeps")
