"""Handlers of sweeps: code that is called once for every index, and its hooks.

    @sweep("mail.all")
    def send(item: Item) -> None:
        deliver(item.index)

A class can do more before the first item: `create` may refuse a sweep for good, `prepare` may
take half an hour to fetch what the items need.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec

from drumline.domain.policy import DEFAULT_TIMEOUT, HandlerSpec, Retry, SweepTraits
from drumline.domain.sweeps.partition import HookParam
from drumline.domain.sweeps.sweep import HOOK_TARGET_TYPE, PARTITION_TARGET_TYPE
from drumline.errors import WrongUse
from drumline.handlers.base import (
    NAME_LIMIT,
    Handler,
    Registered,
    doc_of,
    require_one_argument,
    retry_of,
)
from drumline.handlers.registry import registry
from drumline.task import Task

HOOK_TIMEOUT = 1800.0
LONGEST_ITEM = 86_400.0
LONGEST_LATER = 86_400.0

F = TypeVar("F", bound=Callable[..., Any])


class Refused(Exception):
    """Raised by a hook: this sweep is not to run, now or ever."""


class Later(NamedTuple):
    """Returned by `prepare`: not yet. Ask again after so many seconds; without a number, wait
    until `drumline sweep ready` says so."""

    seconds: float | None = None


class RunningSweep:
    """What the items of one run of a partition share. A runner and a test have their own."""

    sweep_id: int
    name: str
    fence: int
    extra: Any

    def change_extra(self, value: Any) -> None:
        raise NotImplementedError

    def log(self, item: int, message: str) -> None:
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        raise NotImplementedError


class Item:
    """One index of a sweep, as its handler sees it."""

    __slots__ = ("_running", "attempt", "index", "text")

    def __init__(
        self, running: RunningSweep, index: int, text: str | None, attempt: int = 1
    ) -> None:
        self._running = running
        self.index = index
        self.text = text
        """Its line, if the sweep has a source of items."""
        self.attempt = attempt

    def __repr__(self) -> str:
        return f"<Item {self.index} of sweep {self.sweep_id}>"

    @property
    def sweep_id(self) -> int:
        return self._running.sweep_id

    @property
    def sweep_name(self) -> str:
        return self._running.name

    @property
    def fence(self) -> int:
        """Grows with every start of this partition: pass it on to what you change."""
        return self._running.fence

    @property
    def extra(self) -> Any:
        """The sweep's extra data. It can be set while one item runs at a time (parallel 1), and is
        then stored together with how far the sweep is."""
        return self._running.extra

    @extra.setter
    def extra(self, value: Any) -> None:
        self._running.change_extra(value)

    def log(self, message: str) -> None:
        """A line of the sweep's data log, with this index."""
        self._running.log(self.index, message)

    def stop(self, reason: str) -> None:
        """Stop the sweep: no item starts after this one; those that run come to their end."""
        self._running.stop(reason)


class Preparation:
    """A sweep as its hooks see it."""

    def __init__(self, param: HookParam, total: int | None = None) -> None:
        self.sweep_id = param.sweep_id
        self.name = param.name
        self.first = param.first
        self.end = param.end or total
        """The sweep calls every index from `first` to before this; None until they are counted."""
        self._extra: Any = None if param.extra is None else msgspec.json.decode(param.extra)
        self.extra_changed = False

    @property
    def extra(self) -> Any:
        """The sweep's extra data; `prepare` may set it."""
        return self._extra

    @extra.setter
    def extra(self, value: Any) -> None:
        self._extra = value
        self.extra_changed = True


class Sweep:
    """The base of class handlers. `process` is a must, and may be `async def`, as may the hooks."""

    type: ClassVar[str]
    timeout: ClassVar[float] = DEFAULT_TIMEOUT
    """Seconds for one item; the sweep itself has no limit."""
    retry: ClassVar[Retry] = Retry(retries=1, delay=0.1)
    """Of an item that fails, before it counts as an error."""

    def process(self, item: Item) -> Any:
        """Do one item."""
        raise WrongUse(reason=f"{type(self).__name__} has no process method")

    def create(self, sweep: Preparation) -> Any:
        """Look at a new sweep, and raise `Refused` if it is not to be."""

    def prepare(self, sweep: Preparation) -> Any:
        """Fetch what the items need, before each start. Returns None or `Later`."""


class PartitionHandler(Handler):
    """A sweep handler as the registry has it: its tasks are partitions, run by the runner."""

    target_type = PARTITION_TARGET_TYPE

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.types = (sweep.type,)  # type: ignore[misc]  # one class, many names


class SweepHookHandler(Handler):
    """Its hooks: a task that is like any other."""

    target_type = HOOK_TARGET_TYPE

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.types = (sweep.type,)  # type: ignore[misc]

    def process(self, task: Task) -> Any:
        from drumline.runner.sweep.hooks import run_hook  # only a runner needs it

        return run_hook(self.sweep, msgspec.convert(task.param, HookParam))


def register_sweep(factory: Callable[[], Sweep]) -> None:
    """Serve sweeps with what the factory makes: `register_sweep(MailAll)`."""
    made = factory()
    if not isinstance(made, Sweep):
        raise WrongUse(reason=f"{factory!r} made {made!r}, which is not a drumline.Sweep")
    kind = type(made)
    documented = kind.process if kind.process.__doc__ else kind
    add(made, f"{kind.__module__}:{kind.__qualname__}", documented)


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
) -> Callable[[F], F]:
    """Make a function the handler of the sweeps of this type."""
    if not isinstance(name, str):
        raise WrongUse(reason='the decorator needs a name: @sweep("mail.all")')

    def decorate(function: F) -> F:
        given = {"process": function, "create": create, "prepare": prepare}
        made = Sweep()
        vars(made).update({name: hook for name, hook in given.items() if hook is not None})
        made.type = name  # type: ignore[misc]
        made.timeout = timeout  # type: ignore[misc]
        made.retry = Retry(retries, delay, factor, max_delay)  # type: ignore[misc]
        add(made, f"{function.__module__}:{function.__qualname__}", function)
        return function

    return decorate


def add(made: Sweep, origin: str, documented: Callable[..., Any]) -> None:
    registry.enter(registered(made, origin, documented), origin)


def registered(made: Sweep, origin: str, documented: Callable[..., Any]) -> list[Registered]:
    """The manifest lines of a sweep handler, or a clear error about what it lacks."""
    try:
        name = _name(getattr(made, "type", None))
        own = {hook for hook in ("process", "create", "prepare") if _is_own(made, hook)}
        if "process" not in own:
            raise WrongUse(reason="it has no process method")
        for hook in own:
            what = "the item" if hook == "process" else "the sweep"
            require_one_argument(hook, getattr(made, hook), what)
        traits = SweepTraits(
            item_timeout=_timeout(made.timeout),
            item_retry=retry_of(made.retry),
            is_async=inspect.iscoroutinefunction(made.process),
            creates="create" in own,
            prepares="prepare" in own,
        )
    except WrongUse as error:
        raise error.within(f"sweep handler {origin}") from None
    doc = doc_of(documented)
    parts = HandlerSpec(PARTITION_TARGET_TYPE, name, origin=origin, doc=doc, sweep=traits)
    hooks = HandlerSpec(HOOK_TARGET_TYPE, name, timeout=HOOK_TIMEOUT, origin=origin, doc=doc)
    return [Registered(parts, PartitionHandler(made)), Registered(hooks, SweepHookHandler(made))]


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise WrongUse(reason=f"type must name what it serves, and is {name!r}")
    if len(name) > NAME_LIMIT:
        raise WrongUse(
            field="type", reason=f"a name has at most {NAME_LIMIT} letters, {name!r} more"
        )
    return name


def _timeout(seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise WrongUse(reason=f"timeout must be a number of seconds, not {seconds!r}")
    if not 0 < seconds <= LONGEST_ITEM:  # and no NaN either
        raise WrongUse(reason=f"timeout must be 0 to {LONGEST_ITEM:g} seconds, not {seconds!r}")
    return float(seconds)


def _is_own(made: Sweep, name: str) -> bool:
    return name in vars(made) or getattr(type(made), name) is not getattr(Sweep, name)
