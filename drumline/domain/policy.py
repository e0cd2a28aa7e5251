"""The policy of a handler: its timeout, its retries, and what happens when its worker dies."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from drumline.domain.states import Cause

DEFAULT_TIMEOUT = 20.0
TIMEOUT_BY_BATCH_TYPE: Mapping[str, float] = {
    "cdc_job_start": 20.0,
    "cdc_job_stop": 20.0,
    "cdc_change_config": 20.0,
    "cdc_switch_az": 30.0,
    "cdc_switch_run_system": 30.0,
    "cdc_reset_gtid": 480.0,
}
"""The timeout in seconds of these batch types, for a handler that sets none."""


class OnDeath(StrEnum):
    """What happens to a task whose worker died while the task ran."""

    RETRY = "retry"
    FAIL = "fail"
    CANCEL = "cancel"


class Retry(msgspec.Struct, frozen=True):
    """How failed attempts are retried: exponential backoff with jitter."""

    retries: Annotated[int, Meta(ge=0)] = 0
    delay: Annotated[float, Meta(ge=0)] = 1.0
    factor: Annotated[float, Meta(ge=1)] = 2.0
    max_delay: Annotated[float, Meta(gt=0)] = 600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.25
    causes: tuple[str, ...] = (Cause.ERROR, Cause.TIMEOUT, Cause.CALLBACK_TIMEOUT)
    """The causes that are retried."""

    def applies_to(self, cause: Cause) -> bool:
        return cause in self.causes

    def backoff(self, failures: int, chance: float) -> float:
        """Seconds until the next attempt after this many failures in a row; chance is in 0..1."""
        try:
            delay = self.delay * self.factor ** max(failures - 1, 0)
        except OverflowError:  # as 2.0 ** 2000; the delay has reached max_delay long before
            delay = self.max_delay if self.delay else 0.0
        return min(delay, self.max_delay) * (1 + self.jitter * (2 * chance - 1))


class SweepTraits(msgspec.Struct, frozen=True):
    """What the handler of a sweep adds to its HandlerSpec."""

    item_timeout: float = DEFAULT_TIMEOUT
    item_retry: Retry = Retry()
    is_async: bool = False
    """The items run in an event loop."""
    creates: bool = False
    """The handler has a create hook."""
    prepares: bool = False
    """The handler has a prepare hook."""


class HandlerSpec(msgspec.Struct, frozen=True):
    """One entry of a runner's manifest: a handler for one target type and batch type."""

    target_type: str
    type: str
    timeout: float = DEFAULT_TIMEOUT
    retry: Retry = Retry()
    on_death: OnDeath = OnDeath.RETRY
    is_async: bool = False
    captures: bool = False
    rolls_back: bool = False
    callbacks: bool = False
    """Its runs may wait for a callback."""
    origin: str = ""
    doc: str = ""
    schema: dict[str, Any] | None = None
    sweep: SweepTraits | None = None
    """Its tasks are partitions of sweeps."""

    @property
    def key(self) -> str:
        return f"{self.target_type}/{self.type}"
