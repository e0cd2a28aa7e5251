"""What a target says of a run that waits for it. Comes in over HTTP, with the run's own token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from drumline.command_layer import store
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id
from drumline.domain.jobs.callback import Callback
from drumline.domain.release import RetryLimits
from drumline.errors import DrumlineError

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class CallbackReceive(ChangeCommand, frozen=True, kw_only=True):
    """A token is good for one attempt of one run, and is used up by success or failure."""

    name: ClassVar[str] = "callback.receive"
    audited: ClassVar[bool] = False

    task_id: Id
    token: Annotated[str, Meta(max_length=256)]
    callback: Callback

    def change(self, tx: Tx, context: Context) -> dict[str, Any]:
        region, limits = context.settings.region, _limits(context)
        try:
            done = store.callbacks.receive(
                tx, region, self.task_id, self.token, self.callback, limits
            )
        except DrumlineError as error:
            _count(error.code)
            raise
        return {"task_id": self.task_id, "done": done}

    def afterwards(self, context: Context, answer: dict[str, Any]) -> None:
        _count(answer["done"])
        if answer["done"] == "kept":
            # It may have begun to wait while we wrote.
            store.callbacks.settle_kept(context.db, [self.task_id], _limits(context))
        context.ring()


def _limits(context: Context) -> RetryLimits:
    return RetryLimits(context.settings.timeout_retries, context.settings.deaths_allowed)


def _count(result: str) -> None:
    from drumline.telemetry import metrics  # Prometheus is for processes, not for the CLI

    metrics.callbacks.labels(result).inc()
