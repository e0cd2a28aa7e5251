"""A handler as a class: it moves databases to another zone, and can roll that back.

The databases are entries of a JSON file here, in place of any real service.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from drumline import Change, Handler, Task, register


class Move(msgspec.Struct):
    """The param of a task. A submission with a wrong param is refused."""

    file: str
    zone: str


class SwitchZone(Handler):
    """Moves a database to another zone."""

    types = ("example.switch_zone",)
    timeout = 30
    param_type = Move

    def build_param(self, task: Task) -> Change:
        """The state before and after the change, committed before `process` is called."""
        with databases(task) as found:
            before = found[task.target_id]
        return Change(before, before | {"zone": task.param["zone"]})

    def is_finished(self, task: Task) -> bool:
        """Whether the change was made before, by an earlier attempt for example."""
        with databases(task) as found:
            return bool(found[task.target_id] == task.after_update)

    def process(self, task: Task) -> dict[str, Any]:
        with databases(task) as found:
            found[task.target_id] = task.after_update
        return {"moved": task.target_id, "to": task.after_update["zone"]}

    def rollback(self, task: Task) -> None:
        with databases(task) as found:
            found[task.target_id] = task.before_update


class Superseded(Exception):
    """A later attempt at the same task has written already."""


@contextmanager
def databases(task: Task) -> Iterator[dict[str | None, Any]]:
    """The databases, locked for one task; changes are written back.

    The fence grows with every attempt at a task. A service that stores the highest fence can refuse
    the late write of a worker that was suspended and declared dead.
    """
    path = Path(task.param["file"])
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = json.loads(path.read_text())
        fences = state.setdefault("fences", {})
        if fences.get(str(task.id), 0) > task.fence:
            raise Superseded(f"task {task.id} has fence {task.fence}, {path} has a later one")
        fences[str(task.id)] = task.fence
        yield state["databases"]
        new = path.with_suffix(".new")
        new.write_text(json.dumps(state, indent=2) + "\n")
        new.replace(path)  # atomic


register("example.database", SwitchZone)
