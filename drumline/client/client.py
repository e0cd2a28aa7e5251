"""The SDK: what the command line does, from a program.

    with Client() as client:
        batch = client.submit_batch("june", "mail.send", targets=["a@b.c", "d@e.f"])
        assert batch.wait(timeout=60) == "success"
        task = client.schedule("report.build", {"month": 6}, delay=3600)

Threads may share a client. Every change carries a request id: a request without a reply is sent
again under the same id, and the gateway executes it once.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from drumline import config
from drumline.client import arguments, batch_load, chunks
from drumline.client.arguments import Moment, time_text
from drumline.client.control import TRIES, Control, new_request_id
from drumline.client.handles import Batch, NotFinished, SweepHandle, TaskFailed, TaskHandle
from drumline.command_layer.targets import Target
from drumline.errors import DrumlineError, WrongUse

__all__ = ["Batch", "Client", "NotFinished", "SweepHandle", "Target", "TaskFailed", "TaskHandle"]


class Client:
    """Connections to a gateway: the one of the configuration, or the one at `endpoint`."""

    def __init__(
        self, endpoint: str | None = None, *, timeout: float = 30.0, actor: str | None = None
    ) -> None:
        self._endpoint = endpoint or config.load().endpoint("control")
        self._timeout = timeout
        self._actor = user_name() if actor is None else actor
        self._idle: list[Control] = []
        self._process = os.getpid()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def call(
        self, command: str, /, *, request_id: str | None = None, **given: Any
    ) -> dict[str, Any]:
        """Execute any command, with its arguments as the command's fields name them."""
        sent = arguments.plain(command, given)
        with self._connection() as control:
            return control.call(command, sent, request_id or new_request_id())

    # --- batches ---------------------------------------------------------------------------------

    def submit_batch(
        self,
        name: str,
        type: str,
        targets: Iterable[Mapping[str, Any] | str | Target] | None = None,
        *,
        count: int | None = None,
        param: Any = None,
        priority: int | None = None,
        timeout: float | None = None,
        target_type: str | None = None,
        env: str | None = None,
        az: str | None = None,
        cmdb_service: str | None = None,
        creator: str | None = None,
        extra_info: Any = None,
        request_id: str | None = None,
    ) -> Batch:
        """Submit one task for each target, or `count` identical ones.

        A target is a dict of `Target`'s fields, or its id. Targets may come from a generator of any
        length: they are sent in chunks, no task starts before the last chunk has been written, and
        if the generator fails the batch is discarded.
        """
        if (targets is None) == (count is None):
            raise WrongUse(reason="a batch needs either targets or a count")
        reply = batch_load.submit(
            self,
            {
                "batch_name": name,
                "type": type,
                "target_type": target_type,
                "env": env,
                "az": az,
                "cmdb_service": cmdb_service,
                "creator": creator,
                "extra_info": extra_info,
            },
            {"param": param, "priority": priority, "timeout": timeout},
            chunks.of_count(count or 0) if targets is None else chunks.of_targets(targets),
            request_id or new_request_id(),
        )
        return Batch(self, reply["batch_id"])

    def batch(self, batch_id: int) -> Batch:
        """A batch that was submitted before."""
        return Batch(self, batch_id)

    # --- single tasks ----------------------------------------------------------------------------

    def schedule(
        self,
        type: str,
        param: Any = None,
        *,
        instance: str | None = None,
        at: Moment | None = None,
        delay: float | None = None,
        priority: int | None = None,
        timeout: float | None = None,
        target_type: str | None = None,
        env: str | None = None,
        request_id: str | None = None,
    ) -> TaskHandle:
        """Schedule one task: now, at a time, or after a delay in seconds.

        An instance id makes it unique while it is unfinished.
        """
        reply = self.call(
            "task.schedule",
            request_id=request_id,
            type=type,
            param=param,
            instance_id=instance,
            at=time_text(at),
            delay=delay,
            priority=priority,
            timeout=timeout,
            target_type=target_type,
            env=env,
        )
        return TaskHandle(self, reply["task_id"])

    def schedule_many(
        self,
        type: str,
        params: Iterable[Any],
        *,
        instances: Iterable[str | None] | None = None,
        at: Moment | None = None,
        delay: float | None = None,
        priority: int | None = None,
        timeout: float | None = None,
        target_type: str | None = None,
        env: str | None = None,
        request_id: str | None = None,
    ) -> int:
        """Schedule a task for each param, thousands in one message. Returns their number.

        Each message (5,000 tasks) is scheduled completely or not at all.
        """
        request_id = request_id or new_request_id()
        total = 0
        for number, chunk in enumerate(chunks.of_params(params, instances), 1):
            with chunk.naming_source():
                reply = self.call(
                    "task.schedule_many",
                    request_id=f"{request_id}.{number}",
                    type=type,
                    at=time_text(at),
                    delay=delay,
                    priority=priority,
                    timeout=timeout,
                    target_type=target_type,
                    env=env,
                    **chunk.arguments,
                )
            total += reply["tasks"]
        return total

    def task(self, task_id: int) -> TaskHandle:
        """A task that was scheduled before, alone or in a batch."""
        return TaskHandle(self, task_id)

    def scan_now(self) -> None:
        """Have the scanner read due tasks now, after `enqueue` in a transaction of your own."""
        self.call("queue.scan")

    # --- sweeps ----------------------------------------------------------------------------------

    def create_sweep(
        self,
        name: str,
        type: str,
        *,
        total: int | None = None,
        items: str | Iterable[str] | None = None,
        rate: float | None = None,
        parallel: int | None = None,
        errors: int | None = None,
        partitions: int = 1,
        extra: Any = None,
        start: bool = True,
        request_id: str | None = None,
    ) -> SweepHandle:
        """Create a sweep over `total` indexes, or over items: a file, a URL, or a list of lines.

        It starts at once unless `start` is false or its handler has to check it first.
        """
        reply = self.call(
            "sweep.create",
            request_id=request_id,
            name=name,
            type=type,
            total=total,
            items=items if items is None or isinstance(items, str) else tuple(items),
            rate=rate,
            parallel=parallel,
            errors=errors,
            partitions=partitions,
            extra=extra,
            start=start,
        )
        return SweepHandle(self, reply["id"], reply)

    def sweep(self, sweep: int | str) -> SweepHandle:
        """A sweep that was created before, by its id or its name."""
        reply = self.call("sweep.show", sweep=sweep)
        return SweepHandle(self, reply["id"], reply)

    # --- connections -----------------------------------------------------------------------------

    @contextmanager
    def _connection(self) -> Iterator[Control]:
        """A connection that no other thread uses."""
        if self._closed:
            raise WrongUse(reason="the client is closed")
        if self._process != os.getpid():
            # A connection that was inherited over a fork loses messages without an error.
            self._idle, self._process = [], os.getpid()
        try:
            control = self._idle.pop()
        except IndexError:
            control = Control(self._endpoint, self._timeout, self._actor, TRIES)
        try:
            yield control
        except DrumlineError:
            self._put_back(control)
            raise
        except BaseException:
            control.close()  # interrupted between a request and its reply
            raise
        else:
            self._put_back(control)

    def _put_back(self, control: Control) -> None:
        if self._closed:
            control.close()
        else:
            self._idle.append(control)


def user_name() -> str:
    """The user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
