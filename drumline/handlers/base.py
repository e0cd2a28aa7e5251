"""What the author of a handler uses, and the check of a handler when it is registered."""

from __future__ import annotations

import inspect
import signal
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
from drumline.domain.sweeps.definition import HOOK_TARGET_TYPE, PARTITION_TARGET_TYPE
from drumline.errors import WrongUse
from drumline.task import Task

STOP_SIGNAL = signal.SIGUSR1
"""The keeper sends it to the runner to stop the sync task that is running."""


class Change(NamedTuple):
    """The target's state before a task and the state it will have after it. Both become JSON."""

    before: Any
    after: Any


class WaitForCallback(NamedTuple):
    """Returned by a handler that has only started the work: the run ends when the target calls
    `task.callback_url` with `task.callback_token`. The handler must set `callbacks`."""

    seconds: float
    """How long to wait for the callback; after that the run fails."""
    result: Any = None
    """Kept as the result until the callback comes."""


class HandlerFailed(Exception):
    """A failure that carries data besides its text."""

    final: bool = False
    """The task is not retried."""
    cause: Cause | None = None
    result: Any = None
    """Kept as the result of the run if it is small enough."""
    wait: float = 0.0
    """The least number of seconds before a retry."""


class NoRetry(HandlerFailed):
    """Raise this if a retry would fail the same way: the task fails, whatever its retry policy."""

    final = True


class Handler:
    """The base of class handlers. `process` is required; the other methods have defaults.

    The methods of a handler are either all `async def`, and run in the runner's event loop, or
    all plain functions.
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
        """Read the target's present state and decide its new state: return a `Change`.

        Called before the first `process`. The change is committed before anything is changed in
        the target, and later attempts get the same change, whatever state the target has then.
        None means that there is nothing to roll back; the next attempt then calls build_param
        again. For a target that does not exist yet, return `Change(None, …)`.
        """
        return None

    def is_finished(self, task: Task) -> Any:
        """Does the target already have the wanted state? Then `process` is not called."""
        return False

    def process(self, task: Task) -> Any:
        """Do the work. The return value is kept as the task's result."""
        raise WrongUse(reason=f"{type(self).__name__} has no process method")

    def rollback(self, task: Task) -> Any:
        """Restore the target to `task.before_update`."""
        raise WrongUse(reason=f"{type(self).__name__} cannot roll back")


class RegisteredHandler(NamedTuple):
    """A handler and its entry in the manifest."""

    spec: HandlerSpec
    handler: Handler


METHODS = ("build_param", "is_finished", "process", "rollback")
MAX_TIMEOUT = 14 * 86400
MAX_NAME_LENGTH = 128


class FunctionHandler(Handler):
    """A plain function as a handler."""

    def __init__(self, function: Callable[[Task], Any]) -> None:
        self.process = function  # type: ignore[assignment, method-assign]  # set on the instance


def handler_specs(handler: Handler, origin: str) -> list[HandlerSpec]:
    """The handler's entries in the manifest, or an error that says what the handler lacks."""
    kind = type(handler)
    try:
        target_type = checked_name("target_type", getattr(handler, "target_type", None))
        if target_type in (PARTITION_TARGET_TYPE, HOOK_TARGET_TYPE):
            raise WrongUse(
                reason=f"target_type {target_type!r} is reserved for sweeps: see drumline.sweep"
            )
        return [
            HandlerSpec(
                target_type=target_type,
                type=name,
                timeout=_timeout(handler, name),
                retry=checked_retry(handler.retry),
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
    return [checked_name("types", name) for name in types]


def checked_name(field: str, name: object) -> str:
    """A target type or batch type that a handler may serve."""
    if not isinstance(name, str) or not name:
        raise WrongUse(field=field, reason=f"a name must be a text that is not empty, not {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise WrongUse(
            field=field,
            reason=f"a name has at most {MAX_NAME_LENGTH} characters, {name!r} has {len(name)}",
        )
    return name


def _timeout(handler: Handler, type: str) -> float:
    for seconds in (handler.timeouts.get(type), handler.timeout, TIMEOUT_BY_BATCH_TYPE.get(type)):
        if seconds is not None:
            return checked_timeout(seconds, MAX_TIMEOUT)
    return DEFAULT_TIMEOUT


def checked_timeout(seconds: object, maximum: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise WrongUse(reason=f"timeout must be a number of seconds, not {seconds!r}")
    if not 0 < seconds <= maximum:  # false for NaN too
        raise WrongUse(reason=f"timeout must be 0 to {maximum:.0f} seconds, not {seconds!r}")
    return float(seconds)


def checked_retry(retry: Retry) -> Retry:
    if not isinstance(retry, Retry):
        raise WrongUse(reason=f"retry must be a Retry, not {retry!r}")
    try:
        # msgspec does not validate the fields of a struct that Python code creates.
        return msgspec.convert(msgspec.structs.asdict(retry), Retry)
    except msgspec.ValidationError as error:
        raise WrongUse(field="retries", reason=str(error)) from None


def _on_death(word: str) -> OnDeath:
    try:
        return OnDeath(word)
    except ValueError:
        valid = ", ".join(OnDeath)
        raise WrongUse(reason=f"on_death must be one of {valid}, not {word!r}") from None


def _is_async(handler: Handler) -> bool:
    own = [name for name in METHODS if _defines(handler, name)]
    if "process" not in own:
        raise WrongUse(reason="it has no process method")
    for name in own:
        require_one_argument(name, getattr(handler, name), "the task")
    is_async = {name for name in own if inspect.iscoroutinefunction(getattr(handler, name))}
    if is_async and is_async != set(own):
        # One executor runs all methods: the sync one would never await the async methods, in the
        # async one the plain methods would block the event loop.
        plain = ", ".join(name for name in own if name not in is_async)
        raise WrongUse(reason=f"all methods must be async def, or none; these are not: {plain}")
    return bool(is_async)


def _defines(handler: Handler, name: str) -> bool:
    return name in vars(handler) or getattr(type(handler), name) is not getattr(Handler, name)


def require_one_argument(name: str, method: Callable[..., Any], what: str) -> None:
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        raise WrongUse(reason=f"{name} must take one argument, {what}") from None
    except ValueError:
        return  # a function in C without a signature


def _doc(handler: Handler) -> str:
    """The first line that its author wrote; inspect.getdoc would give those of the base class."""
    own = None if isinstance(handler, FunctionHandler) else type(handler).__doc__
    return first_doc_line(handler.process) or inspect.cleandoc(own or "").partition("\n")[0]


def first_doc_line(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0]


def _schema(param_type: Any) -> dict[str, Any] | None:
    if param_type is None:
        return None
    try:
        return msgspec.json.schema(param_type)
    except TypeError as error:
        raise WrongUse(reason=f"param_type has no JSON schema: {error}") from None
