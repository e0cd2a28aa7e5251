"""Handlers for the runner tests: successful, failing, and hard to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from drumline import Change, Handler, Task, handler, register

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@handler("t.echo")
def echo(task: Task) -> Any:
    return task.param


@handler("t.echo_async")
async def echo_async(task: Task) -> Any:
    return task.param


@handler("t.fence")
def fence(task: Task) -> int:
    return task.fence


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _raise(how: str) -> Any:
    match how:
        case "value":
            raise ValueError("no good")
        case "exit":
            sys.exit(3)
        case "unprintable":
            raise Unprintable
        case "surrogate":
            raise ValueError(os.fsdecode(b"\x80"))
        case "not_json":
            return object()
        case _:
            return echo_async(None)  # type: ignore[arg-type]


@handler("t.raises")
def raises(task: Task) -> Any:
    return _raise(task.param)


@handler("t.raises_async")
async def raises_async(task: Task) -> Any:
    return _raise(task.param)


@handler("t.wait_for_file")
def wait_for_file(task: Task) -> None:
    while not Path(task.param).exists():
        time.sleep(0.002)


@handler("t.forever")
def forever(task: Task) -> None:
    signal.pause()


@handler("t.forever_async")
async def forever_async(task: Task) -> None:
    await asyncio.Event().wait()


@handler("t.holds_up_the_loop")
async def holds_up_the_loop(task: Task) -> None:
    time.sleep(600)


@handler("t.stubborn")
def stubborn(task: Task) -> None:
    while True:
        try:
            time.sleep(0.001)
            raise ValueError("again")
        except Exception:  # noqa: S112 - it ignores the interrupt
            continue


@handler("t.turns_stop_into_error")
def turns_stop_into_error(task: Task) -> None:
    try:
        signal.pause()
    except BaseException:
        raise RuntimeError("interrupted") from None


@handler("t.c_loop")
def c_loop(task: Task) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sum(range(10**10))


_waiting: list[asyncio.Event] = []


@handler("t.gather")
async def gather(task: Task) -> None:
    """Ends when `param` tasks run at the same time."""
    event = asyncio.Event()
    _waiting.append(event)
    if len(_waiting) == task.param:
        for waiting in _waiting:
            waiting.set()
    await event.wait()


@handler("t.cancels_itself")
async def cancels_itself(task: Task) -> None:
    inner = asyncio.ensure_future(asyncio.sleep(600))
    inner.cancel()
    await inner


@handler("t.exits_in_subtask")
async def exits_in_subtask(task: Task) -> None:
    async def leave() -> None:
        sys.exit(4)

    await asyncio.ensure_future(leave())


@handler("t.starts_children")
def starts_children(task: Task) -> None:
    """Starts one process in the group, one in its own session, and one whose parent has ended."""
    children = [
        subprocess.Popen(SLEEPER).pid,
        subprocess.Popen(SLEEPER, start_new_session=True).pid,
    ]
    program = (
        "import subprocess, sys;"
        f"print(subprocess.Popen({SLEEPER!r}, start_new_session=True, stdout=2).pid)"
    )
    orphan = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    Path(task.param).write_text(" ".join(map(str, [*children, int(orphan.stdout)])))
    signal.pause()


@handler("t.starts_daemon")
def starts_daemon(task: Task) -> None:
    program = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        f"open({task.param!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    subprocess.run([sys.executable, "-c", program], env={}, check=True)
    signal.pause()


@handler("t.lists_descriptors")
def lists_descriptors(task: Task) -> list[str]:
    """The open files of a program that the task starts, without stdin, stdout and stderr."""
    # os.system and not subprocess, which closes other descriptors by itself.
    os.system(f"ls -l /proc/self/fd > {task.param}")  # noqa: S605 - the path is the test's own
    links = [line.split(maxsplit=10) for line in Path(task.param).read_text().splitlines()[1:]]
    return [to for *_, fd, _, to in links if int(fd) > 2 and not to.startswith("/proc/")]


class Captures(Handler):
    types = ("t.captures",)

    def build_param(self, task: Task) -> Change:
        return Change({"az": "a"}, {"az": "b"} if task.param is None else task.param)

    def process(self, task: Task) -> Any:
        return [task.before_update, task.after_update]


class CapturesAsync(Handler):
    types = ("t.captures_async",)

    async def build_param(self, task: Task) -> Change:
        return Change({"az": "a"}, {"az": "b"})

    async def process(self, task: Task) -> Any:
        return [task.before_update, task.after_update]


register("t.captures", Captures)
register("t.captures_async", CapturesAsync)
