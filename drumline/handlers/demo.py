"""Handlers for demos, tests and benchmarks."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from drumline.handlers.registry import handler
from drumline.handlers.sweep import Item
from drumline.handlers.sweep_registry import sweep
from drumline.task import Task


@handler("demo.noop")
def noop(task: Task) -> None:
    """Does nothing."""


@handler("demo.echo")
def echo(task: Task) -> Any:
    """Returns its param."""
    return task.param


@handler("demo.sleep", timeout=3600)
def sleep(task: Task) -> None:
    """Sleeps for `seconds` (default 1)."""
    time.sleep(_number(task, "seconds", 1.0))


@handler("demo.async_sleep", timeout=3600)
async def async_sleep(task: Task) -> None:
    """Sleeps for `seconds` in the event loop, many at a time."""
    import asyncio

    await asyncio.sleep(_number(task, "seconds", 1.0))


@handler("demo.fail")
def fail(task: Task) -> None:
    """Fails."""
    raise RuntimeError("demo.fail always fails")


@handler("demo.flaky", retries=10, delay=0.05)
def flaky(task: Task) -> None:
    """Fails `times` times (default 1), then succeeds."""
    times = _number(task, "times", 1)
    if task.attempt <= times:
        raise RuntimeError(f"demo.flaky fails {times:g} times; this was attempt {task.attempt}")


@handler("demo.spin")
def spin(task: Task) -> None:
    """Burns a core inside C and ignores SIGTERM: nothing but SIGKILL ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        sum(range(10**10))  # minutes in one call of a C function


@handler("demo.crash")
def crash(task: Task) -> None:
    """Kills its own process."""
    os.kill(os.getpid(), signal.SIGKILL)


@sweep("demo.sweep")
def sweep_noop(item: Item) -> None:
    """Does nothing, for every index."""


def _number(task: Task, name: str, otherwise: float) -> float:
    value = (task.param or {}).get(name, otherwise)
    if not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
    return value
