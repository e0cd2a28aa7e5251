"""A handler as a class: it moves databases to another zone, and can bring them back.

The databases live in a JSON file here. In their place could be anything that can be read and
changed: what matters is which question each method answers.
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
    """The param of a task. A submission that does not fit is refused before anything is written."""

    file: str
    zone: str


class SwitchZone(Handler):
    """Moves a database to another zone."""

    types = ("example.switch_zone",)
    timeout = 30
    param_type = Move

    def build_param(self, task: Task) -> Change:
        """How is it now, and how shall it be? Committed before anything is changed."""
        with databases(task) as found:
            before = found[task.target_id]
        return Change(before, before | {"zone": task.param["zone"]})

    def is_finished(self, task: Task) -> bool:
        """Has an earlier attempt, or somebody else, done it already?"""
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
    """A later execution of the same task has been here."""


@contextmanager
def databases(task: Task) -> Iterator[dict[str | None, Any]]:
    """The databases, for one task alone; what is changed in them is written back.

    The fence grows with every execution of a task. A target that remembers the highest one it
    has seen can refuse a worker that was paused, given up and woke up again.
    """
    path = Path(task.param["file"])
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = json.loads(path.read_text())
        fences = state.setdefault("fences", {})
        if fences.get(str(task.id), 0) > task.fence:
            raise Superseded(f"task {task.id} has fence {task.fence}, {path} knows a later one")
        fences[str(task.id)] = task.fence
        yield state["databases"]
        new = path.with_suffix(".new")
        new.write_text(json.dumps(state, indent=2) + "\n")
        new.replace(path)  # whole or not at all


register("example.database", SwitchZone)
