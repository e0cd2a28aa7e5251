"""Asks the dispatcher to kill a run at once; the keeper would kill it at its next heartbeat."""

from __future__ import annotations

from drumline.command_layer.base import Context
from drumline.errors import NotReachable


def kill_task(context: Context, task_id: int) -> bool:
    """Have the run of a task killed. Returns False if the dispatcher does not answer."""
    try:
        context.dispatcher.kill_task(task_id)
    except NotReachable:
        return False
    return True
