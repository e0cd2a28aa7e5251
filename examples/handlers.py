"""Handlers as functions: a plain one, one that is retried, and an async one."""

from __future__ import annotations

import asyncio
from typing import Any

from drumline import Task, handler


@handler("example.greet", timeout=5)
def greet(task: Task) -> dict[str, Any]:
    """Greet the person named in the param."""
    task.log("Greeting", name=task.param["name"])
    return {"greeting": f"Hello, {task.param['name']}!"}


@handler("example.unsteady", retries=3, delay=0.2)
def unsteady(task: Task) -> str:
    """Succeed at the third attempt."""
    if task.attempt < 3:
        raise ConnectionError(f"attempt {task.attempt} could not connect")
    return f"needed {task.attempt} attempts"


@handler("example.wait", timeout=30)
async def wait(task: Task) -> None:
    """Wait for `seconds`. One worker runs hundreds of these tasks at the same time."""
    await asyncio.sleep(task.param["seconds"])
