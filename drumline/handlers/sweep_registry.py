"""Registers handlers of sweeps: each becomes one handler of partitions and one of hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from drumline.domain.policy import DEFAULT_TIMEOUT, HandlerSpec, Retry, SweepTraits
from drumline.domain.sweeps.definition import HOOK_TARGET_TYPE, PARTITION_TARGET_TYPE
from drumline.domain.sweeps.partition import HookParam, HookResult
from drumline.errors import WrongUse
from drumline.handlers.base import (
    Handler,
    RegisteredHandler,
    checked_name,
    checked_retry,
    checked_timeout,
    first_doc_line,
    require_one_argument,
)
from drumline.handlers.registry import registry
from drumline.handlers.sweep import Item, Preparation, Sweep
from drumline.handlers.sweep_hooks import run_hook
from drumline.task import Task

HOOK_TIMEOUT = 1800.0
MAX_ITEM_TIMEOUT = 86_400.0

Process = TypeVar("Process", bound=Callable[[Item], Any])


class PartitionHandler(Handler):
    """A sweep handler in the registry: its tasks are partitions, which the runner runs itself."""

    target_type = PARTITION_TARGET_TYPE

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.types = (sweep.type,)  # type: ignore[misc]  # a class variable, set on the instance


class SweepHookHandler(Handler):
    """The hooks of a sweep handler: each call of a hook is an ordinary task."""

    target_type = HOOK_TARGET_TYPE

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.types = (sweep.type,)  # type: ignore[misc]  # a class variable, set on the instance

    def process(self, task: Task) -> HookResult:
        return run_hook(self.sweep, msgspec.convert(task.param, HookParam))


def register_sweep(factory: Callable[[], Sweep]) -> None:
    """Register the sweep handler that the factory returns: `register_sweep(MailAll)`."""
    handler = factory()
    if not isinstance(handler, Sweep):
        raise WrongUse(reason=f"{factory!r} returned {handler!r}, which is not a drumline.Sweep")
    kind = type(handler)
    documented = kind.process if kind.process.__doc__ else kind
    _register(handler, f"{kind.__module__}:{kind.__qualname__}", documented)


def sweep(
    name: str,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    retries: int = 1,
    delay: float = 0.1,
    factor: float = 2.0,
    max_delay: float = 60.0,
    create: Callable[[Preparation], Any] | None = None,
    prepare: Callable[[Preparation], Any] | None = None,
) -> Callable[[Process], Process]:
    """Make a function the handler of the sweeps of this type."""
    if not isinstance(name, str):
        raise WrongUse(reason='the decorator needs a name: @sweep("mail.all")')

    def decorate(function: Process) -> Process:
        methods = {"process": function, "create": create, "prepare": prepare}
        handler = Sweep()
        vars(handler).update({key: method for key, method in methods.items() if method is not None})
        handler.type = name  # type: ignore[misc]  # class variables, set on the instance
        handler.timeout = timeout  # type: ignore[misc]
        handler.retry = Retry(retries, delay, factor, max_delay)  # type: ignore[misc]
        _register(handler, f"{function.__module__}:{function.__qualname__}", function)
        return function

    return decorate


def _register(handler: Sweep, origin: str, documented: Callable[..., Any]) -> None:
    registry.add_all(sweep_handlers(handler, origin, documented), origin)


def sweep_handlers(
    handler: Sweep, origin: str, documented: Callable[..., Any]
) -> list[RegisteredHandler]:
    """The handlers of partitions and of hooks, or an error that says what the handler lacks."""
    try:
        name = checked_name("type", getattr(handler, "type", None))
        own = {method for method in ("process", "create", "prepare") if _defines(handler, method)}
        if "process" not in own:
            raise WrongUse(reason="it has no process method")
        for method in own:
            argument = "the item" if method == "process" else "the sweep"
            require_one_argument(method, getattr(handler, method), argument)
        traits = SweepTraits(
            item_timeout=checked_timeout(handler.timeout, MAX_ITEM_TIMEOUT),
            item_retry=checked_retry(handler.retry),
            is_async=inspect.iscoroutinefunction(handler.process),
            creates="create" in own,
            prepares="prepare" in own,
        )
    except WrongUse as error:
        raise error.within(f"sweep handler {origin}") from None
    doc = first_doc_line(documented)
    partitions = HandlerSpec(PARTITION_TARGET_TYPE, name, origin=origin, doc=doc, sweep=traits)
    hooks = HandlerSpec(HOOK_TARGET_TYPE, name, timeout=HOOK_TIMEOUT, origin=origin, doc=doc)
    return [
        RegisteredHandler(partitions, PartitionHandler(handler)),
        RegisteredHandler(hooks, SweepHookHandler(handler)),
    ]


def _defines(handler: Sweep, method: str) -> bool:
    return method in vars(handler) or getattr(type(handler), method) is not getattr(Sweep, method)
