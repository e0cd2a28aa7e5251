"""What the SDK returns for a batch, a task and a sweep: read it, wait for it, change it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

from drumline.client.arguments import Moment, time_text
from drumline.client.polling import poll
from drumline.domain.states import FINISHED
from drumline.domain.sweeps.states import ACTIVE
from drumline.errors import DrumlineError

if TYPE_CHECKING:
    from drumline.client.client import Client


class NotFinished(DrumlineError, TimeoutError):
    """{what} is still {status} after {seconds:g} s."""


class TaskFailed(DrumlineError):
    """Task {id} has no result: it is {status} ({cause}). {info}"""


class Handle(ABC):
    """Something that was submitted. Its properties are as of the last `refresh`."""

    noun: ClassVar[str]

    def __init__(self, client: Client, id: int, details: dict[str, Any] | None = None) -> None:
        self._client = client
        self._details = details
        self.id = id

    def __repr__(self) -> str:
        return f"<{self.noun.capitalize()} {self.id}>"

    def refresh(self) -> Self:
        """Read it again."""
        which: dict[str, Any] = {f"{self.noun}_id": self.id}
        self._details = self._client.call(f"{self.noun}.show", **which)
        return self

    @property
    def details(self) -> dict[str, Any]:
        """All fields that `show` has; of one from a list, the fields that the list has."""
        if self._details is None:
            self.refresh()
        return self._details or {}

    @property
    def status(self) -> str:
        return str(self.details["status"])

    @property
    @abstractmethod
    def finished(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> str:
        """Wait until it has finished and return its status.

        Raises NotFinished, which is a TimeoutError.
        """
        for _ in poll(self.refresh, timeout):
            if self.finished:
                return self.status
        raise NotFinished(what=self, status=self.status, seconds=timeout)


class Batch(Handle):
    """A submitted batch."""

    noun = "batch"

    @property
    def total(self) -> int:
        return int(self.details["total"])

    @property
    def counts(self) -> dict[str, int]:
        """The number of tasks in each state that has any."""
        return dict(self.details["counts"])

    @property
    def finished(self) -> bool:
        return bool(self.details["finished"])

    def tasks(self, *status: str) -> Iterator[TaskHandle]:
        """Its tasks, newest first: all of them, or those in these states."""
        before: int | None = None
        while True:
            page = self._client.call(
                "task.list", batch_id=self.id, status=status, before=before, limit=1000
            )
            for task in page["tasks"]:
                yield TaskHandle(self._client, task["id"], task)
            before = page["next"]
            if before is None:
                return

    def cancel(self, *, force: bool = False) -> None:
        """Cancel the tasks that wait. Running tasks finish first, or are killed by force."""
        self._client.call("batch.cancel", batch_id=self.id, force=force)

    def retry(self, tasks: Iterable[int] = ()) -> int:
        """Run failed tasks again, all of them or those with these ids. Returns their number."""
        reply = self._client.call("batch.retry", batch_id=self.id, task_ids=tuple(tasks))
        return int(reply["retried"])

    def rollback(self) -> None:
        """Undo the changes of its tasks."""
        self._client.call("batch.rollback", batch_id=self.id)


class TaskHandle(Handle):
    """A scheduled task."""

    noun = "task"

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    def result(self, timeout: float | None = None) -> Any:
        """Wait, and return what the handler returned. Raises TaskFailed if it did not succeed."""
        if self.wait(timeout) not in ("success", "rollback_success"):
            task = self.details
            raise TaskFailed(
                id=self.id, status=task["status"], cause=task["cause"], info=task["info"] or ""
            )
        return self.details["result"]

    def cancel(self, *, force: bool = False) -> str:
        """Cancel it. Returns `cancel` if it waited, else `stopping`, or `killing` by force."""
        return str(self._client.call("task.cancel", task_id=self.id, force=force)["state"])

    def reschedule(
        self,
        *,
        at: Moment | None = None,
        delay: float | None = None,
        priority: int | None = None,
    ) -> None:
        """Change the time or the priority of a task that waits."""
        self._client.call(
            "task.reschedule", task_id=self.id, at=time_text(at), delay=delay, priority=priority
        )

    def retry(self) -> None:
        """Run it again, if it failed."""
        self._client.call("task.retry", task_id=self.id)


class SweepHandle(Handle):
    """A sweep that was created."""

    noun = "sweep"

    def refresh(self) -> Self:
        self._details = self._client.call("sweep.show", sweep=self.id)
        return self

    @property
    def status(self) -> str:
        return str(self.details["state"])

    @property
    def finished(self) -> bool:
        """Whether it has ended or waits for `start`."""
        return self.status not in ACTIVE

    @property
    def done(self) -> int:
        """The number of items that have ended, `errors` of them with an error."""
        return int(self.details["done"])

    @property
    def errors(self) -> int:
        return int(self.details["errors"])

    def start(self) -> None:
        """Start it, or resume it where it was stopped."""
        self._details = self._client.call("sweep.start", sweep=self.id)

    def stop(self, reason: str | None = None, *, force: bool = False) -> None:
        """Start no further item. Running items finish first, or are killed by force."""
        self._details = self._client.call("sweep.stop", sweep=self.id, reason=reason, force=force)

    def update(self, **changes: Any) -> None:
        """Change its rate, parallel or errors while it runs."""
        self._details = self._client.call("sweep.update", sweep=self.id, **changes)
