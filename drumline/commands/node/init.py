"""`drumline init`: writes the settings file and an example module of handlers."""

from __future__ import annotations

from pathlib import Path

import click

from drumline.cli import groups, output

HANDLERS = '''\
"""Handlers of this project. Only Drumline's workers import this module."""

from pathlib import Path

from drumline import Change, Handler, Task, handler, register

# drumline batch submit hello --type hello --count 10 --param '{"name": "you"}' --watch


@handler("hello", timeout=20, retries=3)
def hello(task: Task) -> str:
    """The return value is stored as the task's result; an exception makes the task fail."""
    name = (task.param or {}).get("name", "world")
    task.log("Greeting", name=name)
    return f"Hello, {name}!"


# A change that can be rolled back. The targets file has one JSON object per line:
#   {"target_id": "db-1", "param": {"size": 5}}
# drumline batch submit grow --type resize --targets targets.jsonl --watch
# drumline batch rollback ID


class Resize(Handler):
    """Writes a server's size into a file, as a stand-in for a change to a real service."""

    types = ("resize",)
    timeout = 30

    def build_param(self, task: Task) -> Change:
        """The value before and after the change. Drumline stores both before it calls `process`,
        so a rollback is possible even if this process is killed right after that."""
        return Change(before=self.size(task), after=task.param["size"])

    def is_finished(self, task: Task) -> bool:
        """True if the change was made already: a task can run again after a crash."""
        return self.size(task) == int(task.after_update)

    def process(self, task: Task) -> None:
        self.file(task).write_text(str(task.after_update))

    def rollback(self, task: Task) -> None:
        self.file(task).write_text(str(task.before_update))

    def size(self, task: Task) -> int:
        return int(self.file(task).read_text()) if self.file(task).exists() else 1

    def file(self, task: Task) -> Path:
        return Path(f"size-of-{task.target_id}.txt")


register("server", Resize)
'''


@groups.root.command("init", epilog="drumline init")
def init() -> None:
    """Write drumline.toml and an example handlers.py here. Nothing is overwritten."""
    from drumline.config import FILE_NAME, reference
    from drumline.errors import Conflict

    files = {
        Path(FILE_NAME): reference.init_file("handlers"),
        Path("handlers.py"): HANDLERS,
    }
    existing = [str(path) for path in files if path.exists()]
    if existing:
        raise Conflict(reason=f"{', '.join(existing)}: already exists; nothing was written")
    try:
        for path, text in files.items():
            with path.open("x") as file:
                file.write(text)
    except OSError as error:
        raise click.FileError(str(path), error.strerror) from None
    names = [str(path) for path in files]
    output.print_result({"written": names}, f"Written: {', '.join(names)}. Next: `drumline up`.")
