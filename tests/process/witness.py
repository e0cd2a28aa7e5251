"""Handlers that record their runs in a file, so that tests need not trust the database."""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.stack import Stack

HANDLERS = '''
import asyncio, os, signal, subprocess, time
from pathlib import Path
from drumline import Change, Handler, Task, handler, register

FOLDER = Path(os.environ["WITNESS"])

def note(word, task):
    line = f"{word} {task.id} {task.attempt} {task.fence} {os.getpid()} {time.monotonic_ns()}\\n"
    with open(FOLDER / "log", "a") as log:
        log.write(line)

@handler("witness.short")
def short(task: Task):
    note("begin", task)
    time.sleep((task.param or {}).get("seconds", 0.001))
    note("end", task)

@handler("witness.gate")
async def gate(task: Task):
    """Runs until its gate file exists, and keeps the event loop busy."""
    note("begin", task)
    while not (FOLDER / task.param["gate"]).exists():
        await asyncio.sleep(0.005)
    note("end", task)

@handler("witness.stubborn")
def stubborn(task: Task):
    """Ignores SIGTERM, swallows every exception, and starts a grandchild in its own session."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (FOLDER / f"child-{child.pid}").touch()
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

class Switch(Handler):
    """Sets a value in the file of its target."""
    target_type = "switch"
    types = ("switch.set",)

    def file(self, task): return FOLDER / f"target-{task.target_id}"

    def build_param(self, task):
        return Change(before=self.file(task).read_text(), after=task.param["to"])

    def is_finished(self, task):
        return self.file(task).read_text() == task.after_update

    def process(self, task):
        if int(task.target_id) % 2 and (FOLDER / "odd-fails").exists():
            self.file(task).write_text("half done")
            raise RuntimeError("odd targets fail")
        self.file(task).write_text(task.after_update)

    def rollback(self, task):
        note("rollback", task)
        time.sleep(0.01)
        self.file(task).write_text(task.before_update)

register("switch", Switch)

@handler("witness.death", on_death="cancel")
def death(task: Task):
    os.kill(os.getpid(), signal.SIGKILL)
'''


class Witness:
    """The record of the handlers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def forget(self) -> None:
        (self.folder / "log").unlink(missing_ok=True)

    def lines(self, word: str) -> list[list[int]]:
        """The recorded lines of one kind: task, attempt, fence, pid, time."""
        log = self.folder / "log"
        if not log.exists():
            return []
        rows = [line.split() for line in log.read_text().splitlines()]
        return [[int(part) for part in row[1:]] for row in rows if row[0] == word and len(row) == 6]

    def counts(self, word: str) -> Counter[int]:
        """The number of lines of one kind by task."""
        return Counter(row[0] for row in self.lines(word))

    def overlaps(self) -> list[int]:
        """Tasks of which two runs overlap; runs without an end are not compared."""
        spans: dict[int, list[tuple[int, int]]] = {}
        begun: dict[tuple[int, int], int] = {}
        events = [("begin", row) for row in self.lines("begin")]
        events += [("end", row) for row in self.lines("end")]
        for word, (task, _, fence, _, at) in sorted(events, key=lambda e: e[1][4]):
            if word == "begin":
                begun[task, fence] = at
            elif (task, fence) in begun:
                spans.setdefault(task, []).append((begun[task, fence], at))
        return [
            task
            for task, runs in spans.items()
            for (_, end), (start, _) in zip(sorted(runs), sorted(runs)[1:], strict=False)
            if start < end
        ]


class WitnessStack(Stack):
    """A stack with these handlers."""

    def __init__(self, witness: Witness, database_url: str = "", **settings: Any) -> None:
        super().__init__(database_url, handlers=HANDLERS, **settings)
        self.witness = witness
        self.environment["WITNESS"] = str(witness.folder)
