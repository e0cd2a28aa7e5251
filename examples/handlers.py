"""Handlers as functions: a plain one, one that is retried, and one that waits with many others."""

from __future__ import annotations

import asyncio
from typing import Any

from drumline import Task, handler


@handler("example.greet", timeout=5)
def greet(task: Task) -> dict[str, Any]:
    """Greets whoever the param names."""
    task.log("Greeting.", name=task.param["name"])
    return {"greeting": f"Hello, {task.param['name']}!"}


@handler("example.unsteady", retries=3, delay=0.2)
def unsteady(task: Task) -> str:
    """Succeeds at its third attempt."""
    if task.attempt < 3:
        raise ConnectionError(f"attempt {task.attempt} found nobody at home")
    return f"needed {task.attempt} attempts"


@handler("example.wait", timeout=30)
async def wait(task: Task) -> None:
    """Waits for `seconds`. Hundreds of these wait in one worker at the same time."""
    await asyncio.sleep(task.param["seconds"])
