"""A task as it travels from the scan to the code that runs it."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from drumline.domain.policy import Retry
from drumline.domain.states import TaskState


class BatchInfo(msgspec.Struct, frozen=True):
    """What a handler may know of the batch its task belongs to."""

    id: int
    name: str
    batch_type: str
    target_type: str
    creator: str | None = None
    cmdb_service: str | None = None
    env: str | None = None
    region: str | None = None
    az: str | None = None
    extra_info: Any = None


class RunInfo(msgspec.Struct, frozen=True):
    """What a handler may know of the firing that it runs for."""

    job_id: int
    scheduled_at: int
    run_attempt: int
    trace_id: str


class TaskBody(msgspec.Struct, frozen=True, array_like=True):
    """What only the runner reads. On the way there it is bytes to everyone else.

    The JSON documents stay text and the batch stays bytes: a handler that does not look at them
    does not pay for decoding them.
    """

    region: str
    target_id: str | None
    target_name: str | None
    target_env: str | None
    instance_id: str | None
    param: str | None
    before_update: str | None
    after_update: str | None
    batch: bytes | None
    run: bytes | None


class DueTask(msgspec.Struct, frozen=True, array_like=True):
    """A task that may start, with all a keeper needs, so that it need not be read again."""

    id: int
    version: int
    status: TaskState
    type: str
    target_type: str
    priority: int
    due_at: int
    timeout_ms: int
    batch_id: int | None
    attempt: int
    retry_time: int
    failures: int
    deaths: int
    env: str | None
    retry: Retry | None
    job_id: int | None
    body: bytes

    @property
    def fence(self) -> int:
        """The fence that acquiring this very version writes."""
        return self.version + 1

    @property
    def seconds(self) -> float:
        """How long it may run. A partition of a sweep has no limit, and 0 milliseconds."""
        return self.timeout_ms / 1000 or math.inf

    @property
    def key(self) -> str:
        """The handler that serves it."""
        return f"{self.target_type}/{self.type}"


encode_task_body = msgspec.msgpack.Encoder().encode
decode_task_body = msgspec.msgpack.Decoder(TaskBody).decode
decode_batch_info = msgspec.msgpack.Decoder(BatchInfo).decode
decode_run_info = msgspec.msgpack.Decoder(RunInfo).decode
