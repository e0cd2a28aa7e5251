"""What the SDK gives for a batch, a task and a sweep: to look at, to wait for and to steer."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

from drumline.client.payload import Moment, written
from drumline.domain.states import FINISHED
from drumline.domain.sweeps.sweep import ACTIVE
from drumline.errors import DrumlineError, NotReachable

if TYPE_CHECKING:
    from drumline.client.client import Client

LOOKS = (0.02, 0.5)
"""Seconds between two looks at something that is waited for: at first, and later."""
PATIENCE = 60.0
"""Seconds that the gateway may be away while something is waited for."""


class NotFinished(DrumlineError, TimeoutError):
    """{what} is still {status} after {seconds:g} s."""


class TaskFailed(DrumlineError):
    """Task {id} has no result: it is {status} ({cause}). {info}"""


class Handle(ABC):
    """Something that was submitted. `refresh` looks at it again; the properties are what was seen
    last."""

    noun: ClassVar[str]

    def __init__(self, client: Client, id: int, seen: dict[str, Any] | None = None) -> None:
        self._client = client
        self._seen = seen
        self.id = id

    def __repr__(self) -> str:
        return f"<{self.noun.capitalize()} {self.id}>"

    def refresh(self) -> Self:
        which: dict[str, Any] = {f"{self.noun}_id": self.id}
        self._seen = self._client.call(f"{self.noun}.show", **which)
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """All that `show` shows; of one from a list, what the list shows."""
        if self._seen is None:
            self.refresh()
        return self._seen or {}

    @property
    def status(self) -> str:
        return str(self.facts["status"])

    @property
    @abstractmethod
    def finished(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> str:
        """Wait until it has come to its end; its status then.

        Raises NotFinished, which is a TimeoutError.
        """
        began = seen = time.monotonic()
        interval, longest = LOOKS
        while True:
            try:
                if self.refresh().finished:
                    return self.status
                seen = time.monotonic()
            except NotReachable:
                if time.monotonic() - seen > PATIENCE:
                    raise
            left = float("inf") if timeout is None else began + timeout - time.monotonic()
            if left <= 0:
                raise NotFinished(what=self, status=self.status, seconds=timeout)
            time.sleep(min(interval, left))
            interval = min(interval * 1.5, longest)


class Batch(Handle):
    """A submitted batch."""

    noun = "batch"

    @property
    def total(self) -> int:
        return int(self.facts["total"])

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks are in each state; those with none are left out."""
        return dict(self.facts["counts"])

    @property
    def finished(self) -> bool:
        return bool(self.facts["finished"])

    def tasks(self, *status: str) -> Iterator[TaskHandle]:
        """Its tasks, the newest first: all of them, or those in these states."""
        before: int | None = None
        while True:
            page = self._client.call(
                "task.list", batch_id=self.id, status=status, before=before, limit=1000
            )
            for facts in page["tasks"]:
                yield TaskHandle(self._client, facts["id"], facts)
            before = page["next"]
            if before is None:
                return

    def cancel(self, *, force: bool = False) -> None:
        """Cancel what waits; what runs ends first, or is killed."""
        self._client.call("batch.cancel", batch_id=self.id, force=force)

    def retry(self, tasks: Iterable[int] = ()) -> int:
        """Run failed tasks again, all or those with these ids. Returns how many."""
        answer = self._client.call("batch.retry", batch_id=self.id, task_ids=tuple(tasks))
        return int(answer["retried"])

    def rollback(self) -> None:
        """Bring back what it has changed."""
        self._client.call("batch.rollback", batch_id=self.id)


class TaskHandle(Handle):
    """A scheduled task."""

    noun = "task"

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    def result(self, timeout: float | None = None) -> Any:
        """Wait for what its handler returned. Raises TaskFailed if it did not succeed."""
        if self.wait(timeout) not in ("success", "rollback_success"):
            seen = self.facts
            raise TaskFailed(
                id=self.id, status=seen["status"], cause=seen["cause"], info=seen["info"] or ""
            )
        return self.facts["result"]

    def cancel(self, *, force: bool = False) -> str:
        """Cancel it: `cancel` if it waited, else `stopping`, or `killing` by force."""
        return str(self._client.call("task.cancel", task_id=self.id, force=force)["state"])

    def reschedule(
        self,
        *,
        at: Moment | None = None,
        delay: float | None = None,
        priority: int | None = None,
    ) -> None:
        """Move it to another time or priority while it waits."""
        self._client.call(
            "task.reschedule", task_id=self.id, at=written(at), delay=delay, priority=priority
        )

    def retry(self) -> None:
        """Run it again, if it failed."""
        self._client.call("task.retry", task_id=self.id)


class SweepHandle(Handle):
    """A sweep that was created."""

    noun = "sweep"

    def refresh(self) -> Self:
        self._seen = self._client.call("sweep.show", sweep=self.id)
        return self

    @property
    def status(self) -> str:
        return str(self.facts["state"])

    @property
    def finished(self) -> bool:
        """It is over, or stands until somebody starts it."""
        return self.status not in ACTIVE

    @property
    def done(self) -> int:
        """How many items are over; `errors` of them have failed."""
        return int(self.facts["done"])

    @property
    def errors(self) -> int:
        return int(self.facts["errors"])

    def start(self) -> None:
        """Start it, or go on with it where it was stopped."""
        self._seen = self._client.call("sweep.start", sweep=self.id)

    def stop(self, reason: str | None = None, *, force: bool = False) -> None:
        """No further item starts; those that run end first, or are killed."""
        self._seen = self._client.call("sweep.stop", sweep=self.id, reason=reason, force=force)

    def update(self, **changes: Any) -> None:
        """Change its rate, parallel or errors while it runs."""
        self._seen = self._client.call("sweep.update", sweep=self.id, **changes)
