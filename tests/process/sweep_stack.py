"""A stack with sweep handlers that record each index in a file which survives their process."""

import mmap
import os
import time
from pathlib import Path
from typing import Any

from tests.stack import Stack

LONG = bool(os.environ.get("DRUMLINE_LONG_TESTS"))
FINAL = ("finished", "stopped", "failed")

HANDLERS = '''
import asyncio, mmap, os, struct, time
from pathlib import Path
from drumline import Item, Later, Preparation, Refused, Sweep, register_sweep, sweep

FOLDER = Path(os.environ["WITNESS"])
MAPS = {}

def marks(name):
    """The number of times each index was processed, in one byte each."""
    if name not in MAPS:
        with open(FOLDER / name, "r+b") as file:
            MAPS[name] = mmap.mmap(file.fileno(), 0)
    return MAPS[name]

def note(name, *words):
    with open(FOLDER / f"{name}.log", "a") as log:
        log.write(" ".join(map(str, (time.time_ns(), *words))) + "\\n")

@sweep("w.mark", retries=0)
def mark(item: Item):
    marks(item.sweep_name)[item.index] += 1

@sweep("w.note", retries=0)
def noted(item: Item):
    note(item.sweep_name, item.index, item.text)

@sweep("w.loop", retries=0)
async def loop(item: Item):
    await asyncio.sleep(0.01)
    marks(item.sweep_name)[item.index] += 1

@sweep("w.slow", retries=0)
def slow(item: Item):
    """Takes some time, during which a thread can be interrupted."""
    time.sleep(0.02)
    marks(item.sweep_name)[item.index] += 1

@sweep("w.thousandth", retries=1, delay=0)
def thousandth(item: Item):
    """Every 1,000th item fails, until the fault is fixed."""
    if item.index % 1000 == 999 and not (FOLDER / "fixed").exists():
        raise RuntimeError("it is a thousandth")
    marks(item.sweep_name)[item.index] += 1

@sweep("w.stuck", timeout=0.3, retries=0)
def stuck(item: Item):
    """Index 3 can be interrupted; index 5 cannot, until its process is killed."""
    note(item.sweep_name, item.index)
    if item.index == 3:
        time.sleep(60)
    if item.index == 5:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                time.sleep(1)
            except BaseException:
                pass

@sweep("w.die", retries=0)
def die(item: Item):
    note(item.sweep_name, item.index)
    if item.index == 50:
        os.kill(os.getpid(), 9)

@sweep("w.serial", retries=0)
def serial(item: Item):
    """Adds up the indexes in the sweep's extra data."""
    item.extra = {"sum": (item.extra or {}).get("sum", 0) + item.index}
    if item.index % 100 == 0:
        item.log(f"at {item.index}")
    if item.index == 700 and not (FOLDER / "go-on").exists():
        item.stop("that is enough")

class Prepared(Sweep):
    type = "w.prepared"
    def create(self, sweep: Preparation):
        if (sweep.extra or {}).get("refuse") == "create":
            raise Refused("not this one")
    def prepare(self, sweep: Preparation):
        wish = (sweep.extra or {}).get("prepare")
        if wish == "refuse": raise Refused("not even prepared")
        if wish == "break": raise RuntimeError("the service is away")
        if wish == "later" and not (FOLDER / "there").exists(): return Later(0.2)
        if wish == "wait": return Later()
        if wish == "slow": time.sleep(600)
        sweep.extra = {"fetched": 7}
    def process(self, item: Item):
        note(item.sweep_name, item.index, item.extra["fetched"])

register_sweep(Prepared)
'''


class SweepStack(Stack):
    """A node with the handlers of this module."""

    def __init__(self, folder: Path, database_url: str = "", **settings: Any) -> None:
        super().__init__(database_url, handlers=HANDLERS, http_allow_loopback=True, **settings)
        self.folder = folder
        self.environment["WITNESS"] = str(folder)

    def create(self, name: str, type: str, total: int | None = None, **fields: Any) -> int:
        if total is not None and total <= 100_000_000:
            with (self.folder / name).open("wb") as file:
                file.truncate(total)
        about = {"name": name, "type": type, "start": True, **fields}
        if total is not None:
            about["total"] = total
        return int(self.call("sweep.create", **about)["id"])

    def marks(self, name: str) -> mmap.mmap:
        with (self.folder / name).open("r+b") as file:
            return mmap.mmap(file.fileno(), 0)

    def notes(self, name: str) -> list[list[str]]:
        """The recorded lines: the time in seconds, then words."""
        log = self.folder / f"{name}.log"
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def sweep(self, name: str | int) -> dict[str, Any]:
        return self.call("sweep.show", sweep=name)

    def wait_state(self, name: str | int, *states: str, deadline: float = 30.0) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            found = self.sweep(name)
            return found if found["state"] in states else None

        return self.wait_for(reached, deadline, f"sweep {name} to be {' or '.join(states)}")

    def wait_done(self, name: str | int, count: int, deadline: float = 30.0) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            found = self.sweep(name)
            return found if found["done"] >= count else None

        return self.wait_for(reached, deadline, f"{count} items of {name}")


def speed_between(stack: SweepStack, name: str, seconds: float) -> float:
    """Items a second, by the recorded indexes, over this time."""
    began, first = time.monotonic(), len(stack.notes(name))
    stack.wait_for(lambda: time.monotonic() - began >= seconds or None, seconds + 5, "time")
    return (len(stack.notes(name)) - first) / (time.monotonic() - began)
