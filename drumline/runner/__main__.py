"""The runner: a process that runs users' code and has nothing of Drumline's but one pipe a lane.

Started by a keeper as `python -m drumline.runner`; dies with it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec

from drumline.handlers.registry import import_handlers, registry
from drumline.runner.blackbox import BlackBox
from drumline.runner.executors import AsyncExecutor, SyncExecutor
from drumline.runner.frames import Channel, RunnerReady, ToRunner

PR_SET_PDEATHSIG = 1
DUMP_SIGNAL = signal.SIGUSR2
"""Sent by the keeper to one thread to have its stack written, whatever its code is doing. Only to
a runner that is to die: the stack of a thread at work cannot be read by another, and even its own
system calls may come to harm."""


class RunnerConfig(msgspec.Struct, frozen=True):
    """What a keeper tells its runner on the command line."""

    keeper_pid: int
    sync_channel: int
    sync_tickets: int
    async_channel: int
    async_tickets: int
    dump: int
    blackbox: str
    imports: tuple[str, ...]

    def descriptors(self) -> tuple[int, ...]:
        """What the runner inherits."""
        return (
            self.sync_channel,
            self.sync_tickets,
            self.async_channel,
            self.async_tickets,
            self.dump,
        )


def main() -> None:
    start = msgspec.json.decode(sys.argv[1], type=RunnerConfig)
    _die_with(start.keeper_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started us all
    faulthandler.register(DUMP_SIGNAL, file=start.dump, all_threads=False)
    for fd in start.descriptors():
        os.set_inheritable(fd, False)  # they are not for the programs that a task starts
    sys.path.insert(0, str(Path.cwd()))
    sync, async_ = (
        Channel(socket.socket(fileno=fd), ToRunner)
        for fd in (start.sync_channel, start.async_channel)
    )
    box = BlackBox(Path(start.blackbox))
    problems = import_handlers(start.imports)
    manifest = registry.manifest()
    loop_thread = 0
    if any(spec.is_async for spec in manifest):
        loop_thread = AsyncExecutor(registry, async_, start.async_tickets, box).start()
    lane = SyncExecutor(registry, sync, start.sync_tickets, box)
    sync.send(RunnerReady(tuple(manifest), tuple(problems), loop_thread))
    lane.run()
    os._exit(0)  # the async lane's thread must not hold us


def _die_with(keeper_pid: int) -> None:
    """Have the kernel kill us when the keeper is gone, and see whether it is gone already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper_pid:
        os._exit(1)


if __name__ == "__main__":
    main()
