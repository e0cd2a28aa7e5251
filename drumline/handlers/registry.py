"""The registry of handlers, and the import of the modules that register them."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from drumline.domain.policy import HandlerSpec, Retry
from drumline.errors import WrongUse
from drumline.handlers.base import FunctionHandler, Handler, RegisteredHandler, handler_specs
from drumline.task import Task

ENTRY_POINTS = "drumline.handlers"

F = TypeVar("F", bound=Callable[[Task], Any])


class Registry:
    """Handlers by the key `target type/batch type`."""

    def __init__(self) -> None:
        self._handlers: dict[str, RegisteredHandler] = {}

    def __getitem__(self, key: str) -> RegisteredHandler:
        return self._handlers[key]

    def __contains__(self, key: object) -> bool:
        return key in self._handlers

    def manifest(self) -> list[HandlerSpec]:
        return [self._handlers[key].spec for key in sorted(self._handlers)]

    def add(self, handler: Handler, origin: str) -> None:
        """Add all of a handler's types, or none if one of them is refused."""
        self.add_all(
            [RegisteredHandler(spec, handler) for spec in handler_specs(handler, origin)], origin
        )

    def add_all(self, registered: Sequence[RegisteredHandler], origin: str) -> None:
        for spec, _ in registered:
            known = self._handlers.get(spec.key)
            # With the same origin it is the same module, imported again.
            if known is not None and known.spec.origin != origin:
                raise WrongUse(
                    reason=f"{spec.key} is served by {known.spec.origin} and by {origin}"
                )
        self._handlers.update((one.spec.key, one) for one in registered)


registry = Registry()
"""The registry of this process."""


def handler(
    name: str,
    *,
    timeout: float | None = None,
    retries: int = 0,
    delay: float = 1.0,
    factor: float = 2.0,
    max_delay: float = 600.0,
    jitter: float = 0.25,
    on_death: str = "retry",
    callbacks: bool = False,
    param_type: Any = None,
    target_type: str | None = None,
) -> Callable[[F], F]:
    """Make a function the handler of the target type and batch type of this name."""
    if not isinstance(name, str):
        raise WrongUse(reason='the decorator needs a name: @handler("mail.send")')

    def decorate(function: F) -> F:
        wrapped = FunctionHandler(function)
        wrapped.target_type = target_type or name  # type: ignore[misc]  # a class variable
        wrapped.types = (name,)  # type: ignore[misc]
        wrapped.timeout = timeout  # type: ignore[misc]
        wrapped.retry = Retry(retries, delay, factor, max_delay, jitter)  # type: ignore[misc]
        wrapped.on_death = on_death  # type: ignore[misc, assignment]  # checked by the registry
        wrapped.callbacks = callbacks  # type: ignore[misc]
        wrapped.param_type = param_type  # type: ignore[misc]
        registry.add(wrapped, f"{function.__module__}:{function.__qualname__}")
        return function

    return decorate


def register(target_type: str, factory: Callable[[], Handler]) -> None:
    """Register the handler that the factory returns for a target type."""
    handler = factory()
    if not isinstance(handler, Handler):
        raise WrongUse(reason=f"{factory!r} returned {handler!r}, which is not a drumline.Handler")
    handler.target_type = target_type  # type: ignore[misc]  # overrides the class's own
    registry.add(handler, f"{type(handler).__module__}:{type(handler).__qualname__}")


def import_handlers(imports: Iterable[str]) -> list[str]:
    """Import the modules that register handlers. Returns a text for each that failed."""
    from importlib.metadata import entry_points  # 20 ms that only a runner needs

    problems = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except (Exception, SystemExit):
            problems.append(f"entry point {point.name} ({point.value}): {traceback.format_exc()}")
    for module in imports:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit):
            problems.append(f"import {module}: {traceback.format_exc()}")
    return problems
