"""The task that is passed to a handler."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from drumline.domain.task import (
    BatchInfo,
    DueTask,
    RunInfo,
    TaskBody,
    decode_batch_info,
    decode_run_info,
    decode_task_body,
)

_UNDECODED: Any = object()


class Task:
    """One attempt at a task. Fields are decoded when a handler first reads them."""

    __slots__ = (
        "_after", "_batch", "_before", "_body", "_param", "attempt", "batch_id", "callback_token",
        "callback_url", "env", "fence", "id", "status", "target_type", "type",
    )  # fmt: skip

    def __init__(self, due: DueTask, callback: tuple[str, str] | None = None) -> None:
        self.id = due.id
        self.type = due.type
        self.target_type = due.target_type
        self.status = due.status
        self.batch_id = due.batch_id
        self.env = due.env
        self.attempt = due.attempt + 1
        self.fence = due.fence
        """Grows with every attempt at this task. A service that stores the highest fence can refuse
        a late write of an older attempt."""
        self.callback_url: str | None = callback and callback[0]
        """The URL for the callback of this attempt, if the handler uses callbacks."""
        self.callback_token: str | None = callback and callback[1]
        self._body: TaskBody | bytes = due.body
        self._param: Any = _UNDECODED
        self._before: Any = _UNDECODED
        self._after: Any = _UNDECODED
        self._batch: Any = _UNDECODED

    def __repr__(self) -> str:
        return f"<Task {self.id} {self.type} attempt {self.attempt}>"

    @property
    def body(self) -> TaskBody:
        if isinstance(self._body, bytes):
            self._body = decode_task_body(self._body)
        return self._body

    @property
    def param(self) -> Any:
        """The submitted param, decoded from JSON."""
        if self._param is _UNDECODED:
            self._param = _decoded(self.body.param)
        return self._param

    @property
    def before_update(self) -> Any:
        """The state that `build_param` captured before the first change; a rollback restores it."""
        if self._before is _UNDECODED:
            self._before = _decoded(self.body.before_update)
        return self._before

    @property
    def after_update(self) -> Any:
        """The state that this task should bring about."""
        if self._after is _UNDECODED:
            self._after = _decoded(self.body.after_update)
        return self._after

    def captured(self, before: object, after: object) -> None:
        """Set the states that the handler's `build_param` returned."""
        self._before, self._after = before, after

    @property
    def batch(self) -> BatchInfo | None:
        """The batch of this task."""
        if self._batch is _UNDECODED:
            self._batch = None if self.body.batch is None else decode_batch_info(self.body.batch)
        return self._batch  # type: ignore[no-any-return]  # set just above

    @property
    def run(self) -> RunInfo | None:
        """The firing of a job that this task runs for."""
        return None if self.body.run is None else decode_run_info(self.body.run)

    @property
    def target_id(self) -> str | None:
        return self.body.target_id

    @property
    def target_name(self) -> str | None:
        return self.body.target_name

    @property
    def target_env(self) -> str | None:
        return self.body.target_env

    @property
    def instance_id(self) -> str | None:
        return self.body.instance_id

    @property
    def region(self) -> str:
        return self.body.region

    def log(self, message: str, **fields: object) -> None:
        """Write a line with this task's ids to the log of the worker."""
        line = {
            "event": message, "action": "task_log", "task_id": self.id, "batch_id": self.batch_id,
            "type": self.type, "attempt": self.attempt,
        }  # fmt: skip
        if (run := self.run) is not None:
            line |= {"job_id": run.job_id, "trace_id": run.trace_id}
        line |= fields
        print(msgspec.json.encode(line, enc_hook=str).decode(), file=sys.stderr, flush=True)


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
