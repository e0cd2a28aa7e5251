"""What a handler is: a function, or a class that also captures, checks and rolls back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import msgspec

from drumline.domain.policy import (
    DEFAULT_TIMEOUT,
    TIMEOUT_BY_BATCH_TYPE,
    HandlerSpec,
    OnDeath,
    Retry,
)
from drumline.domain.states import Cause
from drumline.domain.sweeps.sweep import HOOK_TARGET_TYPE, PARTITION_TARGET_TYPE
from drumline.errors import WrongUse
from drumline.task import Task


class Change(NamedTuple):
    """What a handler found, and what it is going to make of it. Both must fit into JSON."""

    before: Any
    after: Any


class WaitForCallback(NamedTuple):
    """Returned by a handler that has only begun it: the run is over when its target calls back
    at `task.callback_url` with `task.callback_token`. The handler must ask for `callbacks`."""

    seconds: float
    """So long at most; past them the run fails."""
    result: Any = None
    """What is kept of the beginning."""


class HandlerFailed(Exception):
    """A failure that says more than its text."""

    final: bool = False
    """No retry would mend it."""
    cause: Cause | None = None
    result: Any = None
    """Kept as the result of the run, as far as it fits."""
    wait: float = 0.0
    """Another try, if there is one, comes after so many seconds at the earliest."""


class NoRetry(HandlerFailed):
    """Raise this if another try would fail the same way: there is none, whatever the policy."""

    final = True


class Handler:
    """The base of class handlers. `process` is a must; the rest has sensible defaults.

    Either all methods that a handler has are `async def`, and run in the runner's event loop, or
    none is.
    """

    target_type: ClassVar[str]
    types: ClassVar[tuple[str, ...]]
    timeout: ClassVar[float | None] = None
    timeouts: ClassVar[Mapping[str, float]] = {}
    retry: ClassVar[Retry] = Retry()
    on_death: ClassVar[OnDeath] = OnDeath.RETRY
    callbacks: ClassVar[bool] = False
    param_type: ClassVar[Any] = None

    def build_param(self, task: Task) -> Any:
        """Read the target's present state and say what it is to become: a `Change`.

        Called before the first `process`. What it returns is committed before anything is changed
        and kept: later attempts get it as it is, however the target looks by then. None means
        that there is nothing to roll back, and is asked for again by the next attempt; a target
        that does not exist yet is better told as `Change(None, …)`.
        """
        return None

    def is_finished(self, task: Task) -> Any:
        """Is the target already as this task wants it? Then `process` is not called."""
        return False

    def process(self, task: Task) -> Any:
        """Do it. What is returned is kept as the task's result."""
        raise WrongUse(reason=f"{type(self).__name__} has no process method")

    def rollback(self, task: Task) -> Any:
        """Bring the target back to `task.before_update`."""
        raise WrongUse(reason=f"{type(self).__name__} cannot roll back")


class Registered(NamedTuple):
    """A handler ready to be called, with its line of the manifest."""

    spec: HandlerSpec
    handler: Handler


METHODS = ("build_param", "is_finished", "process", "rollback")
LONGEST_TIMEOUT = 14 * 86400
NAME_LIMIT = 128


class FunctionHandler(Handler):
    """A plain function as a handler."""

    def __init__(self, function: Callable[[Task], Any]) -> None:
        self.process = function  # type: ignore[assignment, method-assign]  # that is the process


def specs_of(handler: Handler, origin: str) -> list[HandlerSpec]:
    """The manifest lines of a handler, or a clear error about what it lacks."""
    kind = type(handler)
    try:
        target_type = _name("target_type", getattr(handler, "target_type", None))
        if target_type in (PARTITION_TARGET_TYPE, HOOK_TARGET_TYPE):
            raise WrongUse(reason=f"target_type {target_type!r} is for sweeps: see drumline.sweep")
        return [
            HandlerSpec(
                target_type=target_type,
                type=name,
                timeout=_timeout(handler, name),
                retry=retry_of(handler.retry),
                on_death=_on_death(handler.on_death),
                is_async=_is_async(handler),
                captures=kind.build_param is not Handler.build_param,
                rolls_back=kind.rollback is not Handler.rollback,
                callbacks=bool(handler.callbacks),
                origin=origin,
                doc=_doc(handler),
                schema=_schema(handler.param_type),
            )
            for name in _types(handler)
        ]
    except WrongUse as error:
        raise error.within(f"handler {origin}") from None


def _types(handler: Handler) -> list[str]:
    types = getattr(handler, "types", None)
    if not isinstance(types, tuple | list) or not types:
        raise WrongUse(reason=f"types must be a tuple of names, not {types!r}")
    return [_name("types", name) for name in types]


def _name(field: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise WrongUse(reason=f"{field} must name what it serves, and is {name!r}")
    if len(name) > NAME_LIMIT:
        raise WrongUse(
            field=field, reason=f"a name has at most {NAME_LIMIT} letters, {name!r} more"
        )
    return name


def _timeout(handler: Handler, type: str) -> float:
    for known in (handler.timeouts.get(type), handler.timeout, TIMEOUT_BY_BATCH_TYPE.get(type)):
        if known is None:
            continue
        if isinstance(known, bool) or not isinstance(known, int | float):
            raise WrongUse(reason=f"timeout must be a number of seconds, not {known!r}")
        if not 0 < known <= LONGEST_TIMEOUT:  # and no NaN either
            raise WrongUse(reason=f"timeout must be 0 to {LONGEST_TIMEOUT} seconds, not {known!r}")
        return float(known)
    return DEFAULT_TIMEOUT


def retry_of(retry: Retry) -> Retry:
    if not isinstance(retry, Retry):
        raise WrongUse(reason=f"retry must be a Retry, not {retry!r}")
    try:
        # A struct does not look at its values when it is made in Python.
        return msgspec.convert(msgspec.structs.asdict(retry), Retry)
    except msgspec.ValidationError as error:
        raise WrongUse(field="retries", reason=str(error)) from None


def _on_death(word: str) -> OnDeath:
    try:
        return OnDeath(word)
    except ValueError:
        known = ", ".join(OnDeath)
        raise WrongUse(reason=f"on_death must be one of {known}, not {word!r}") from None


def _is_async(handler: Handler) -> bool:
    own = [name for name in METHODS if _is_own(handler, name)]
    if "process" not in own:
        raise WrongUse(reason="it has no process method")
    for name in own:
        require_one_argument(name, getattr(handler, name), "the task")
    loops = {name for name in own if inspect.iscoroutinefunction(getattr(handler, name))}
    if loops and loops != set(own):
        # In the wrong lane, one half would never be awaited or the other would hold up the loop.
        plain = ", ".join(name for name in own if name not in loops)
        raise WrongUse(reason=f"all of its methods must be async def, or none; not so: {plain}")
    return bool(loops)


def _is_own(handler: Handler, name: str) -> bool:
    return name in vars(handler) or getattr(type(handler), name) is not getattr(Handler, name)


def require_one_argument(name: str, method: Callable[..., Any], what: str) -> None:
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        raise WrongUse(reason=f"{name} must take one argument, {what}") from None
    except ValueError:
        return  # something in C that does not tell


def _doc(handler: Handler) -> str:
    """The first line that its author wrote; inspect.getdoc would give those of the base class."""
    own = None if isinstance(handler, FunctionHandler) else type(handler).__doc__
    return doc_of(handler.process) or inspect.cleandoc(own or "").partition("\n")[0]


def doc_of(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0]


def _schema(param_type: Any) -> dict[str, Any] | None:
    if param_type is None:
        return None
    try:
        return msgspec.json.schema(param_type)
    except TypeError as error:
        raise WrongUse(reason=f"param_type has no JSON schema: {error}") from None
