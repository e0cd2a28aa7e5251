"""What the author of a sweep's handler uses: the item, the sweep before its start, the base class.

    @sweep("mail.all")
    def send(item: Item) -> None:
        deliver(item.index)

The handler is called once for every index. A class can do more before the first item: `create`
may refuse a sweep for good, `prepare` may take half an hour to fetch what the items need.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import msgspec

from drumline.domain.policy import DEFAULT_TIMEOUT, Retry
from drumline.domain.sweeps.partition import MAX_EXTRA_BYTES, HookParam
from drumline.errors import WrongUse


class Refused(Exception):
    """Raised by a hook: the sweep must not run, now or later."""


class Later(NamedTuple):
    """Returned by `prepare` when the sweep is not ready: call it again after `seconds`. Without a
    number the sweep waits for `drumline sweep ready`."""

    seconds: float | None = None


class RunningSweep:
    """What the items of one run of a partition share; implemented by the runner and by tests."""

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
    """One index of a sweep."""

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
        """Grows with every start of this partition. Pass it to the systems you change, so that
        they can refuse an older run."""
        return self._running.fence

    @property
    def extra(self) -> Any:
        """The sweep's extra data. An item can set it while one item runs at a time (parallel 1);
        it is then stored with the next checkpoint."""
        return self._running.extra

    @extra.setter
    def extra(self, value: Any) -> None:
        self._running.change_extra(value)

    def log(self, message: str) -> None:
        """Write a line with this index to the sweep's data log."""
        self._running.log(self.index, message)

    def stop(self, reason: str) -> None:
        """Stop the sweep: no item starts after this one; items that are running finish."""
        self._running.stop(reason)


class Preparation:
    """A sweep as its hooks see it."""

    def __init__(self, param: HookParam, total: int | None = None) -> None:
        self.sweep_id = param.sweep_id
        self.name = param.name
        self.first = param.first
        self.end = param.end or total
        """The sweep runs every index from `first` to before `end`; None until items are counted."""
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
    """The base of class handlers. `process` is required; it and the hooks may be `async def`."""

    type: ClassVar[str]
    timeout: ClassVar[float] = DEFAULT_TIMEOUT
    """Seconds for one item; the sweep itself has no limit."""
    retry: ClassVar[Retry] = Retry(retries=1, delay=0.1)
    """How an item that fails is retried before it counts as an error."""

    def process(self, item: Item) -> Any:
        """Process one item."""
        raise WrongUse(reason=f"{type(self).__name__} has no process method")

    def create(self, sweep: Preparation) -> Any:
        """Check a new sweep; raise `Refused` if it must not run."""

    def prepare(self, sweep: Preparation) -> Any:
        """Fetch what the items need, before each start. Returns None or `Later`."""


def encode_extra(value: Any) -> str:
    """The extra data of a sweep as JSON, or an error that says why it cannot be stored."""
    try:
        document = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongUse(reason=f"extra data must fit into JSON: {error}") from None
    if len(document) > MAX_EXTRA_BYTES:
        raise WrongUse(
            reason=f"extra data has {len(document)} bytes of JSON, the limit is {MAX_EXTRA_BYTES}"
        )
    return document.decode()
