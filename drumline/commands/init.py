"""`drumline init`: the two files of a new project, ready to be changed."""

from __future__ import annotations

from pathlib import Path

import click

from drumline.commands import groups, terminal

SETTINGS = """\
# Drumline's settings. Each can also be set from the environment: DRUMLINE_HTTP_PORT=8200.
# What is commented out shows the default. `drumline config show` lists all of them.

# Modules of handlers. The directory in which `drumline up` is called is searched first.
imports = ["handlers"]

# --- where ---

# Sockets, logs and the API token; a relative path is beside this file.
# run_dir = "var"

# Without it: SQLite in run_dir. Several machines need a server:
# database_url = "mysql://drumline:secret@db.example/drumline"

# Where REST, the dashboard and /metrics are served. Beyond 127.0.0.1 put TLS in front of it.
# http_host = "127.0.0.1"
# http_port = 8127

# A node touches only the work of its region.
# region = "default"

# --- how much ---

# Worker processes; 0 means two for each core, 32 at most.
# workers = 0

# Tasks that wait in memory, ready to start. The rest waits in the database.
# queue_capacity = 1000

# Replace a runner after so many tasks, or above so much memory; 0 means never.
# runner_tasks = 0
# runner_memory_mb = 0

# --- how it ends ---

# How long running tasks may go on when Drumline is stopped, before they are given back.
# drain_seconds = 30.0

# How long a task that is to stop has to clean up, before it is killed.
# kill_grace = 2.0

# Deaths of its worker after which a task is quarantined.
# deaths_allowed = 3

# How long finished tasks and batches are kept, and who did what.
# keep_finished_days = 30.0
# keep_audit_days = 90.0

# --- who is told ---

# Signed messages when a batch ends, a job fails, a task is quarantined or a sweep stops.
# [[webhooks]]
# name = "ops"
# url = "https://ops.example/drumline"
# secret_env = "OPS_SECRET"
"""

HANDLERS = '''\
"""Handlers of this project. They run in Drumline's workers and in none of its other processes."""

from pathlib import Path

from drumline import Change, Handler, Task, handler, register

# drumline batch submit hello --type hello --count 10 --param '{"name": "you"}' --watch


@handler("hello", timeout=20, retries=3)
def hello(task: Task) -> str:
    """What it returns is kept as the task's result; what it raises makes it fail."""
    name = (task.param or {}).get("name", "world")
    task.log("Saying hello.", name=name)
    return f"Hello, {name}!"


# A change that can be rolled back. The targets, one JSON object a line:
#   {"target_id": "db-1", "param": {"size": 5}}
# drumline batch submit grow --type resize --targets targets.jsonl --watch
# drumline batch rollback ID


class Resize(Handler):
    """Writes a server's size into a file, in the place of a service that is changed."""

    types = ("resize",)
    timeout = 30

    def build_param(self, task: Task) -> Change:
        """What is there now, and what it is to become. It is stored before anything is changed,
        so a rollback knows the way back even if this process dies the moment after."""
        return Change(before=self.size(task), after=task.param["size"])

    def is_finished(self, task: Task) -> bool:
        """A task may run again after a crash: say so if nothing is left to do."""
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
    from drumline.config import FILE_NAME
    from drumline.errors import Conflict

    files = {Path(FILE_NAME): SETTINGS, Path("handlers.py"): HANDLERS}
    there = [str(path) for path in files if path.exists()]
    if there:
        raise Conflict(reason=f"There already is {' and '.join(there)}; nothing was written")
    try:
        for path, text in files.items():
            with path.open("x") as file:
                file.write(text)
    except OSError as error:
        raise click.FileError(str(path), error.strerror) from None
    names = [str(path) for path in files]
    terminal.answer({"written": names}, f"Written: {', '.join(names)}. Next: `drumline up`.")
