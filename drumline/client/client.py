"""The SDK: what the command line does, from a program.

    with Client() as client:
        batch = client.submit_batch("june", "mail.send", targets=["a@b.c", "d@e.f"])
        assert batch.wait(timeout=60) == "success"
        task = client.schedule("report.build", {"month": 6}, delay=3600)

A client may be used by many threads. Each change carries a request id: if no answer comes, it is
sent once more under the same id, and the gateway does it once.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from types import TracebackType
from typing import Any, Self

from drumline import config
from drumline.client import payload
from drumline.client.control import Control, new_request_id
from drumline.client.handles import Batch, NotFinished, SweepHandle, TaskFailed, TaskHandle
from drumline.client.payload import Moment, written
from drumline.command_layer.targets import Target
from drumline.errors import DrumlineError, NotReachable, StoreUnavailable, WrongUse

__all__ = ["Batch", "Client", "NotFinished", "SweepHandle", "Target", "TaskFailed", "TaskHandle"]


class Client:
    """A connection to a gateway: that of the configuration, or the one at `endpoint`."""

    def __init__(
        self, endpoint: str | None = None, *, timeout: float = 30.0, actor: str | None = None
    ) -> None:
        self._endpoint = endpoint or config.load().endpoint("control")
        self._timeout = timeout
        self._actor = _user() if actor is None else actor
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
        self, command: str, /, *, request_id: str | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Have any command done, with its arguments as the command's fields name them."""
        sent = payload.sendable(command, arguments)
        request_id = request_id or new_request_id()
        with self._control() as control:
            try:
                return control.call(command, sent, request_id)
            except StoreUnavailable:
                raise  # this was an answer
            except NotReachable:
                return control.call(command, sent, request_id)

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
        """Submit one task for each target, or `count` equal ones.

        A target is a dict of `Target`'s fields, or just its id. They may come from a generator of
        any length: they are sent in pieces, none starts before the last has been written, and if
        the generator fails nothing is left of the batch.
        """
        if (targets is None) == (count is None):
            raise WrongUse(reason="a batch needs either targets or a count")
        about = {
            "batch_name": name,
            "type": type,
            "target_type": target_type,
            "env": env,
            "az": az,
            "cmdb_service": cmdb_service,
            "creator": creator,
            "extra_info": extra_info,
        }
        work = {"param": param, "priority": priority, "timeout": timeout}
        parts = payload.counted(count or 0) if targets is None else payload.targeted(targets)
        request_id = request_id or new_request_id()
        first, second = next(parts, None), next(parts, None)
        if first is None:
            raise WrongUse(reason="a batch needs at least one target")
        if second is None:
            answer = self.call("batch.submit", request_id=request_id, **about, **work, **first)
        else:
            answer = self._load(request_id, about, work, chain((first, second), parts))
        return Batch(self, answer["batch_id"])

    def _load(
        self,
        request_id: str,
        about: Mapping[str, Any],
        work: Mapping[str, Any],
        parts: Iterable[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Each piece has a request id of its own: what is repeated goes on where it stopped."""
        opened = self.call("batch.open", request_id=f"{request_id}.open", **about)
        batch_id = opened["batch_id"]
        try:
            for number, part in enumerate(parts, 1):
                piece = f"{request_id}.{number}"
                self.call("batch.load", request_id=piece, batch_id=batch_id, **work, **part)
        except NotReachable:
            raise  # the same request id can go on with it
        except BaseException:
            with suppress(DrumlineError):
                self.call("batch.discard", batch_id=batch_id)
            raise
        return self.call("batch.start", request_id=f"{request_id}.start", batch_id=batch_id)

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
        answer = self.call(
            "task.schedule",
            request_id=request_id,
            type=type,
            param=param,
            instance_id=instance,
            at=written(at),
            delay=delay,
            priority=priority,
            timeout=timeout,
            target_type=target_type,
            env=env,
        )
        return TaskHandle(self, answer["task_id"])

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
        """Schedule a task for each param, thousands in one message. Returns how many.

        What fits into one message (5,000 tasks) is scheduled whole or not at all.
        """
        request_id = request_id or new_request_id()
        total = 0
        for number, part in enumerate(payload.one_shots(params, instances), 1):
            answer = self.call(
                "task.schedule_many",
                request_id=f"{request_id}.{number}",
                type=type,
                at=written(at),
                delay=delay,
                priority=priority,
                timeout=timeout,
                target_type=target_type,
                env=env,
                **part,
            )
            total += answer["tasks"]
        return total

    def task(self, task_id: int) -> TaskHandle:
        """A task that was scheduled before, alone or in a batch."""
        return TaskHandle(self, task_id)

    def ring(self) -> None:
        """Have due tasks looked for now, after enqueueing in a transaction of your own."""
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
        """Create a sweep over so many indexes, or over items: a file, a URL, or a list of lines.

        It starts at once unless told otherwise, or unless its handler has to check it first.
        """
        answer = self.call(
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
        return SweepHandle(self, answer["id"], answer)

    def sweep(self, sweep: int | str) -> SweepHandle:
        """A sweep that was created before, by its id or its name."""
        answer = self.call("sweep.show", sweep=sweep)
        return SweepHandle(self, answer["id"], answer)

    # --- connections -----------------------------------------------------------------------------

    @contextmanager
    def _control(self) -> Iterator[Control]:
        """A connection of this thread's alone for as long as it talks."""
        if self._closed:
            raise WrongUse(reason="the client is closed")
        if self._process != os.getpid():
            # A connection that came over a fork loses messages without a word.
            self._idle, self._process = [], os.getpid()
        try:
            control = self._idle.pop()
        except IndexError:
            control = Control(self._endpoint, timeout=self._timeout, actor=self._actor)
        try:
            yield control
        except DrumlineError:
            self._give_back(control)
            raise
        except BaseException:
            control.close()  # it was interrupted between a question and its answer
            raise
        else:
            self._give_back(control)

    def _give_back(self, control: Control) -> None:
        if self._closed:
            control.close()
        else:
            self._idle.append(control)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
