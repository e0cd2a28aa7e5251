"""A node with jobs: handlers that record their runs in a file, and a service for HTTP jobs."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from drumline.client.control import Control
from drumline.errors import DrumlineError
from tests.stack import Stack

HANDLERS = '''
import asyncio, os, time
from pathlib import Path
from drumline import NoRetry, Task, WaitForCallback, handler

FOLDER = Path(os.environ["WITNESS"])

def note(word, task):
    with open(FOLDER / "log", "a") as log:
        log.write(f"{word} {task.run.job_id} {task.id} {task.attempt} {time.time_ns() // 1000}\\n")

@handler("w.tick")
def tick(task: Task):
    note("begin", task)
    note("end", task)
    return task.param

@handler("w.gate", timeout=120)
async def gate(task: Task):
    """Runs until its gate file exists."""
    note("begin", task)
    try:
        while not (FOLDER / task.param["gate"]).exists():
            await asyncio.sleep(0.01)
    finally:
        note("end", task)

@handler("w.fail")
def fail(task: Task):
    note("begin", task)
    raise RuntimeError("it always fails")

@handler("w.never", retries=5, delay=0.01)
def never(task: Task):
    note("begin", task)
    raise NoRetry("there is no such account")

@handler("w.begin", callbacks=True)
def begin(task: Task):
    (FOLDER / f"token-{task.id}").write_text(task.callback_token)
    return WaitForCallback(task.param["seconds"], {"began": task.callback_url})
'''


ONCE_A_YEAR = "0 0 0 1 1 *"
"""Fires on 1 January only: for jobs that a test triggers by hand."""


class Note(NamedTuple):
    word: str
    job_id: int
    task_id: int
    attempt: int
    at: int


class JobStack(Stack):
    """A node with the handlers of this module."""

    def __init__(self, folder: Path, database_url: str = "", **settings: Any) -> None:
        super().__init__(
            database_url, workers=2, handlers=HANDLERS, http_allow_loopback=True, **settings
        )
        self.folder = folder
        self.environment["WITNESS"] = str(folder)

    def notes(self, job_id: int | None = None, word: str | None = None) -> list[Note]:
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        notes = [Note(w, *map(int, rest)) for w, *rest in map(str.split, lines)]
        return [n for n in notes if job_id in (None, n.job_id) and word in (None, n.word)]

    def job(self, name: str, **fields: Any) -> int:
        about = {"name": name, "cron_expr": "* * * * * *", **fields}
        return int(self.call("job.create", **about)["id"])

    def runs(self, job: int | str, *statuses: str, **options: Any) -> list[dict[str, Any]]:
        """A job's runs and skips, the oldest first."""
        found = self.call("job.runs", job=job, status=list(statuses), limit=1000, **options)
        return list(reversed(found["runs"]))

    def wait_runs(
        self, job: int | str, count: int, *statuses: str, deadline: float = 20.0
    ) -> list[dict[str, Any]]:
        def enough() -> list[dict[str, Any]] | None:
            found = self.runs(job, *statuses)
            return found if len(found) >= count else None

        what = f"{count} runs of {job} that are {' or '.join(statuses) or 'stored'}"
        return self.wait_for(enough, deadline, what)

    def open_gate(self, name: str) -> None:
        (self.folder / name).touch()

    def task(self, task_id: int) -> dict[str, Any]:
        return self.call("task.show", task_id=task_id)

    def wait_task(self, task_id: int, *statuses: str, deadline: float = 20.0) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            task = self.task(task_id)
            return task if task["status"] in statuses else None

        return self.wait_for(reached, deadline, f"task {task_id} to be {' or '.join(statuses)}")

    def wait_settled(self, job: int | str, deadline: float = 20.0) -> list[dict[str, Any]]:
        """Disable a job and wait until its runs are finished; all its runs."""
        self.call("job.disable", job=job)

        def idle() -> bool:
            shown = self.call("job.show", job=job)
            return not (shown["runs_under_way"] or shown["runs_queued"])

        self.wait_for(idle, deadline, f"the end of the runs of {job}")
        return self.runs(job)


def at(run: dict[str, Any], what: str = "scheduled_at") -> float:
    return datetime.fromisoformat(run[what]).timestamp()


def seconds_of(runs: list[dict[str, Any]]) -> list[int]:
    return [round(at(run)) for run in runs]


# --- the service ---------------------------------------------------------------------------------


class ServiceCall(NamedTuple):
    path: str
    headers: dict[str, str]
    body: str

    @property
    def kind(self) -> str:
        return self.path.partition("?")[0].split("/")[1]


STATUS = {"broken": 500, "busy": 503, "begin": 202, "redirect": 302}
SLOW_SECONDS = 1.4
HUGE = 8 * 1024 * 1024


class Service:
    """Answers by the first part of the path, and keeps the calls that it received."""

    def __init__(self) -> None:
        self.calls: list[ServiceCall] = []
        self.max_concurrent: Counter[str] = Counter()
        """The largest number of concurrent calls, by path."""
        self.before_answer: Callable[[ServiceCall], None] = lambda call: None
        self._current: Counter[str] = Counter()
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                call = ServiceCall(self.path, dict(self.headers.items()), body)
                with service.counted(call):
                    service.before_answer(call)
                    if call.kind == "hang":
                        service.closing.wait(60)
                    elif call.kind == "slow":
                        time.sleep(SLOW_SECONDS)
                answer = json.dumps({"path": self.path}).encode()
                if call.kind == "huge":
                    answer = b"x" * HUGE
                with suppress(ConnectionError):  # the caller has disconnected
                    self.send_response(STATUS.get(call.kind, 200))
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(answer)))
                    self.send_header("Location", "/ok/elsewhere")
                    if call.kind == "busy":
                        self.send_header("Retry-After", "600")
                    self.end_headers()
                    self.wfile.write(answer)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self.closing = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @contextmanager
    def counted(self, call: ServiceCall) -> Iterator[None]:
        path = call.path.partition("?")[0]
        with self._lock:
            self.calls.append(call)
            self._current[path] += 1
            self.max_concurrent[path] = max(self.max_concurrent[path], self._current[path])
        yield
        with self._lock:
            self._current[path] -= 1

    def clear(self) -> None:
        self.calls.clear()
        self.max_concurrent.clear()

    def calls_to(self, path: str) -> list[ServiceCall]:
        return [call for call in list(self.calls) if call.path.startswith(path)]

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


class CallbackSender:
    """Sends callbacks for received calls, from any thread, over its own connection."""

    def __init__(self, stack: Stack) -> None:
        self.endpoint = f"ipc://{stack.run_path / 'control.sock'}"

    def __call__(
        self, call: ServiceCall, status: str, token: str | None = None, **values: Any
    ) -> str:
        """Send one; the result: done, kept, noted, or the code of the error."""
        task_id = int(call.headers["Drumline-Callback-Url"].rpartition("/")[2])
        arguments = {
            "task_id": task_id,
            "token": call.headers["Drumline-Callback-Token"] if token is None else token,
            "callback": {"status": status, **values},
        }
        control = Control(self.endpoint, timeout=20.0)
        try:
            return str(control.call("callback.receive", arguments)["done"])
        except DrumlineError as error:
            return error.code
        finally:
            control.close()


def wait_until(moment: float) -> None:
    """Sleep until this wall-clock time, by which jobs fire."""
    while (left := moment - time.time()) > 0:
        time.sleep(min(left, 0.05))
