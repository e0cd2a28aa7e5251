"""The handlers of a chaos run. Each records its begin, signs of life while it runs, and its end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from chaos.history import Began, Ended, ItemDone, Recorder, TargetChanged, Ticked
from drumline import Change, Handler, Item, Task, handler, register, sweep

FOLDER_VARIABLE = "CHAOS_HISTORY"
TARGETS_VARIABLE = "CHAOS_TARGETS"
TICK_SECONDS = 0.05
TIMEOUT = 20.0


class Unlucky(Exception):
    """The task was submitted to fail."""


@cache
def recorder() -> Recorder:
    return Recorder(Path(os.environ[FOLDER_VARIABLE]))


@contextmanager
def recorded(task: Task) -> Iterator[None]:
    run = task.run
    recorder().write(
        Began(
            at=time.monotonic(),
            task_id=task.id,
            fence=task.fence,
            attempt=task.attempt,
            type=task.type,
            timeout=TIMEOUT,
            runner_pid=os.getpid(),
            keeper_pid=os.getppid(),
            job_id=run.job_id if run is not None else None,
        )
    )
    exception: str | None = None
    try:
        yield
    except BaseException as error:
        exception = type(error).__name__
        raise
    finally:
        recorder().write(
            Ended(at=time.monotonic(), task_id=task.id, fence=task.fence, exception=exception)
        )


def ticks(task: Task) -> Iterator[float]:
    """Record a sign of life, and yield the seconds until the next, for as long as the task runs."""
    end = time.monotonic() + (task.param or {}).get("seconds", 0.0)
    while (left := end - time.monotonic()) > 0:
        yield min(left, TICK_SECONDS)
        recorder().write(Ticked(at=time.monotonic(), task_id=task.id, fence=task.fence))
    if task.attempt <= (task.param or {}).get("failures", 0):
        raise Unlucky(f"attempt {task.attempt}")


@handler("chaos.sync", timeout=TIMEOUT, retries=2, delay=0.1)
def run_sync(task: Task) -> None:
    with recorded(task):
        for seconds in ticks(task):
            time.sleep(seconds)


@handler("chaos.async", timeout=TIMEOUT, retries=2, delay=0.1)
async def run_async(task: Task) -> None:
    with recorded(task):
        for seconds in ticks(task):
            await asyncio.sleep(seconds)


@handler("chaos.once", timeout=TIMEOUT, on_death="fail")
def run_once(task: Task) -> None:
    with recorded(task):
        for seconds in ticks(task):
            time.sleep(seconds)


class ChangeTarget(Handler):
    """Writes a value into a file per target, and restores it in a rollback."""

    target_type = "chaos"
    types = ("chaos.change",)
    timeout = TIMEOUT

    def build_param(self, task: Task) -> Change:
        return Change(before=_target(task).read_text(), after="after")

    def process(self, task: Task) -> None:
        with recorded(task):
            _write(task, "half")
            for seconds in ticks(task):
                time.sleep(seconds)
            _write(task, task.after_update)

    def rollback(self, task: Task) -> None:
        with recorded(task):
            _write(task, task.before_update)


register("chaos", ChangeTarget)


@sweep("chaos.items", timeout=5.0)
def handle_item(item: Item) -> None:
    time.sleep(0.001)
    recorder().write(ItemDone(at=time.monotonic(), sweep_id=item.sweep_id, index=item.index))


def _target(task: Task) -> Path:
    path = Path(os.environ[TARGETS_VARIABLE]) / str(task.target_id)
    if not path.exists():
        path.write_text("before")
    return path


def _write(task: Task, value: str) -> None:
    _target(task).write_text(value)
    recorder().write(
        TargetChanged(
            at=time.monotonic(),
            task_id=task.id,
            fence=task.fence,
            target=str(task.target_id),
            value=value,
        )
    )
