"""Receives the callback of a run over HTTP, authenticated by the run's own token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from drumline.command_layer import store
from drumline.command_layer.answers import Answer
from drumline.command_layer.base import ChangeCommand, Context
from drumline.command_layer.fields import Id
from drumline.domain.jobs.callback import Callback
from drumline.domain.release import RetryLimits
from drumline.errors import DrumlineError

if TYPE_CHECKING:
    from drumline.store.tx import Tx


class CallbackReceived(Answer, frozen=True, kw_only=True):
    """What was done with the callback."""

    task_id: int
    done: Literal["done", "kept", "noted"]
    """`done`: the run has ended. `kept`: stored until the run waits for it. `noted`: progress."""


class CallbackReceive(ChangeCommand, frozen=True, kw_only=True):
    """Report the success, the failure or the progress of a run that waits for a callback.

    A token is valid for one attempt of one run, until success or failure is reported.
    """

    name: ClassVar[str] = "callback.receive"
    audited: ClassVar[bool] = False

    task_id: Id
    token: Annotated[str, Meta(max_length=256)]
    callback: Callback

    def change(self, tx: Tx, context: Context) -> CallbackReceived:
        region, limits = context.settings.region, _limits(context)
        try:
            done = store.callbacks.receive(
                tx, region, self.task_id, self.token, self.callback, limits
            )
        except DrumlineError as error:
            _count(error.code)
            raise
        return CallbackReceived(task_id=self.task_id, done=done)  # type: ignore[arg-type]

    def after_commit(self, context: Context, answer: CallbackReceived) -> None:
        _count(answer.done)
        if answer.done == "kept":
            # The run may have started to wait while the callback was written.
            store.callbacks.apply_kept(context.db, [self.task_id], _limits(context))
        context.notify_scanner()


def _limits(context: Context) -> RetryLimits:
    return RetryLimits(context.settings.timeout_retries, context.settings.deaths_allowed)


def _count(result: str) -> None:
    from drumline.telemetry import metrics  # keeps Prometheus out of the CLI

    metrics.callbacks.labels(result).inc()
