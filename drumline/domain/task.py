"""A due task, as the scanner reads it and the dispatcher, the keeper and the runner pass it on."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from drumline.domain.policy import Retry
from drumline.domain.states import TaskState


class BatchInfo(msgspec.Struct, frozen=True):
    """What a handler can read of its task's batch."""

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
    """What a handler can read of its job's firing."""

    job_id: int
    scheduled_at: int
    run_attempt: int
    trace_id: str


class TaskBody(msgspec.Struct, frozen=True, array_like=True):
    """The part of a task that only the runner decodes; for all others it is bytes.

    JSON documents stay text, and the batch and the run stay bytes, until a handler reads them: a
    handler that does not read them is spared the time to decode them.
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
    """A task that may start, with all that a keeper needs to acquire and run it."""

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
        """The fence that an acquire of this version writes."""
        return self.version + 1

    @property
    def seconds(self) -> float:
        """The timeout; infinite for a partition of a sweep, whose `timeout_ms` is 0."""
        return self.timeout_ms / 1000 or math.inf

    @property
    def key(self) -> str:
        """The key of its handler."""
        return f"{self.target_type}/{self.type}"


encode_task_body = msgspec.msgpack.Encoder().encode
decode_task_body = msgspec.msgpack.Decoder(TaskBody).decode
decode_batch_info = msgspec.msgpack.Decoder(BatchInfo).decode
decode_run_info = msgspec.msgpack.Decoder(RunInfo).decode
