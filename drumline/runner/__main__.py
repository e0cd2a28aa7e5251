"""The runner: a process that runs users' code and has no connection but those to its keeper.

A keeper starts it as `python -m drumline.runner`; it ends when the keeper ends.
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
from drumline.runner.async_executor import AsyncExecutor
from drumline.runner.blackbox import BlackBox
from drumline.runner.frames import Channel, RunnerReady, ToRunner
from drumline.runner.sync_executor import SyncExecutor

PR_SET_PDEATHSIG = 1
DUMP_SIGNAL = signal.SIGUSR2
"""The keeper sends it to one thread of the runner, which then writes its stack whatever its code is
doing. Only to a runner that will be killed: the signal may break the thread's system calls."""


class RunnerConfig(msgspec.Struct, frozen=True):
    """The keeper passes it to its runner on the command line."""

    keeper_pid: int
    sync_channel: int
    sync_tickets: int
    async_channel: int
    async_tickets: int
    dump: int
    blackbox: str
    imports: tuple[str, ...]

    def descriptors(self) -> tuple[int, ...]:
        """The file descriptors that the runner inherits."""
        return (
            self.sync_channel,
            self.sync_tickets,
            self.async_channel,
            self.async_tickets,
            self.dump,
        )


def main() -> None:
    config = msgspec.json.decode(sys.argv[1], type=RunnerConfig)
    _end_with(config.keeper_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started Drumline
    faulthandler.register(DUMP_SIGNAL, file=config.dump, all_threads=False)
    for fd in config.descriptors():
        os.set_inheritable(fd, False)  # programs that a task starts must not inherit them
    sys.path.insert(0, str(Path.cwd()))
    sync, async_ = (
        Channel(socket.socket(fileno=fd), ToRunner)
        for fd in (config.sync_channel, config.async_channel)
    )
    box = BlackBox(Path(config.blackbox))
    problems = import_handlers(config.imports)
    manifest = registry.manifest()
    loop_thread = 0
    if any(spec.is_async for spec in manifest):
        loop_thread = AsyncExecutor(registry, async_, config.async_tickets, box).start()
    executor = SyncExecutor(registry, sync, config.sync_tickets, box)
    sync.send(RunnerReady(tuple(manifest), tuple(problems), loop_thread))
    executor.run()
    os._exit(0)  # without waiting for the async executor's thread


def _end_with(keeper_pid: int) -> None:
    """Have the kernel kill this process when the keeper ends; exit if it has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper_pid:
        os._exit(1)


if __name__ == "__main__":
    main()
