"""A runner process driven by a test in place of its keeper, and tasks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.event_loop import EventLoop
from actors.worker.runner_process import RunnerProcess
from drumline.domain.states import TaskState
from drumline.domain.task import DueTask, TaskBody, encode_task_body
from drumline.runner.frames import Frame, RunEnded, RunnerReady
from drumline.system import processes

HANDLERS = "tests.process.runner_handlers"
TIMEOUT_SECONDS = 20.0

F = TypeVar("F", bound=Frame)


class Harness:
    """The keeper's side of a runner, without a database and without a dispatcher."""

    def __init__(self, blackbox: Path, imports: Sequence[str] = (HANDLERS,)) -> None:
        self.loop = EventLoop()
        self.frames: list[Frame] = []
        self.runner = RunnerProcess(self.loop, blackbox, imports, self.frames.append)
        self.ready = self.frame(RunnerReady)

    def until(self, condition: Callable[[], object], seconds: float = TIMEOUT_SECONDS) -> None:
        """Run the loop until the condition is true, or fail after `seconds`."""
        reached = False

        def check() -> None:
            nonlocal reached
            if condition():
                reached = True
                self.loop.stop()

        watch = self.loop.call_every(0.002, check)
        limit = self.loop.call_later(seconds, self.loop.stop)
        self.loop._running = True
        self.loop.run()
        watch.cancel()
        limit.cancel()
        assert reached, f"not within {seconds} s; the runner sent {self.frames}"

    def found(self, kind: type[F], task_id: int | None = None) -> F | None:
        for frame in self.frames:
            if isinstance(frame, kind) and task_id in (None, getattr(frame, "task_id", None)):
                return frame
        return None

    def frame(self, kind: type[F], task_id: int | None = None) -> F:
        """Wait for the first such frame."""
        self.until(lambda: self.found(kind, task_id))
        frame = self.found(kind, task_id)
        assert frame is not None
        return frame

    def ended(self) -> list[RunEnded]:
        return [frame for frame in self.frames if isinstance(frame, RunEnded)]

    def running(self) -> set[int]:
        return {entry.task_id for entry in self.runner.started_tasks()}

    def close(self) -> None:
        self.runner.kill()
        self.runner.close()
        self.loop.close()


def due_task(task_id: int, name: str, param: object = None, version: int = 0) -> DueTask:
    return DueTask(
        id=task_id,
        version=version,
        status=TaskState.PENDING,
        type=f"t.{name}",
        target_type=f"t.{name}",
        priority=5,
        due_at=0,
        timeout_ms=20_000,
        batch_id=None,
        attempt=0,
        retry_time=0,
        failures=0,
        deaths=0,
        env=None,
        retry=None,
        job_id=None,
        body=encode_task_body(
            TaskBody(
                region="default",
                target_id=None,
                target_name=None,
                target_env=None,
                instance_id=None,
                param=msgspec.json.encode(param).decode(),
                before_update=None,
                after_update=None,
                batch=None,
                run=None,
            )
        ),
    )


def is_dead(pid: int) -> bool:
    return not processes.is_alive(pid)
