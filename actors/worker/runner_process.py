"""The runner as its keeper sees it: a process with two executor pipes and a black box."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from actors.event_loop import EventLoop
from drumline.domain.task import DueTask
from drumline.handlers.base import STOP_SIGNAL
from drumline.runner.__main__ import DUMP_SIGNAL, RunnerConfig
from drumline.runner.blackbox import BlackBox, StartedTask
from drumline.runner.frames import (
    Channel,
    ForgetTasks,
    Frame,
    RunTasks,
    ToKeeper,
    encode_frame,
    encode_tickets,
    read_ticket,
)
from drumline.system import processes

TICKET_BYTES = 256 * 1024
"""16,384 tickets: more than a keeper ever holds, so that writing them never blocks."""

DATABASE_VARIABLE = "DRUMLINE_DATABASE_URL"


class ExecutorPipe:
    """The keeper's ends of one executor's frame channel and ticket pipe.

    Sending never blocks: bytes that the socket does not take are written when it is writable.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        keeper_end, self.runner_end = socket.socketpair()
        keeper_end.setblocking(False)
        self.channel = Channel(keeper_end, ToKeeper)
        self._outgoing = bytearray()
        self.ticket_out, self.ticket_in = os.pipe()
        os.set_blocking(self.ticket_out, False)
        with suppress(PermissionError):  # over the user's pipe limit; at least 4,096 tickets fit
            fcntl.fcntl(self.ticket_in, fcntl.F_SETPIPE_SZ, TICKET_BYTES)

    def send_tasks(
        self, tasks: Sequence[DueTask], callbacks: dict[int, tuple[str, str]] | None = None
    ) -> None:
        """Send the tasks, then their tickets, which let them start."""
        self.send(RunTasks(tuple(tasks), callbacks or {}))
        os.write(self.ticket_in, encode_tickets(tasks))

    def send(self, frame: Frame) -> None:
        self._outgoing += encode_frame(frame)
        self._flush()

    def _flush(self) -> None:
        end = self.channel.end
        try:
            while self._outgoing:
                del self._outgoing[: end.send(self._outgoing)]
        except BlockingIOError:
            self._loop.add_writer(end.fileno(), self._flush)
            return
        except (BrokenPipeError, ConnectionResetError):
            self._outgoing.clear()  # the runner has ended; SIGCHLD follows
        self._loop.remove_writer(end.fileno())

    def take_back(self) -> list[int]:
        """Take back all unread tickets; returns their tasks, which will not start."""
        taken = []
        while (ticket := read_ticket(self.ticket_out)) is not None:
            taken.append(ticket.task_id)
        if taken:
            self.send(ForgetTasks(tuple(taken)))
        return taken

    def close(self) -> None:
        self._loop.remove_reader(self.channel.end.fileno())
        self._loop.remove_writer(self.channel.end.fileno())
        self.channel.end.close()
        os.close(self.ticket_out)
        os.close(self.ticket_in)


class RunnerProcess:
    """One runner process, until it has ended and its frames have been read."""

    def __init__(
        self,
        loop: EventLoop,
        blackbox: Path,
        imports: Sequence[str],
        on_frame: Callable[[Frame], None],
    ) -> None:
        self._loop = loop
        self._mark = str(blackbox)
        self._on_frame = on_frame
        self.sync, self.async_ = ExecutorPipe(loop), ExecutorPipe(loop)
        self.black_box = BlackBox(blackbox)
        self.black_box.clear()
        self._dump = os.memfd_create("stacks")
        self._other_descendants = set(processes.descendants(os.getpid()))
        self.exit_code: int | None = None
        config = RunnerConfig(
            keeper_pid=os.getpid(),
            sync_channel=self.sync.runner_end.fileno(),
            sync_tickets=self.sync.ticket_out,
            async_channel=self.async_.runner_end.fileno(),
            async_tickets=self.async_.ticket_out,
            dump=self._dump,
            blackbox=str(blackbox),
            imports=tuple(imports),
        )
        # A process group of its own: signals to the keeper's group must not reach a running task.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "drumline.runner", msgspec.json.encode(config).decode()],
            pass_fds=config.descriptors(),
            process_group=0,
            stdin=subprocess.DEVNULL,
            env=_without_keys(os.environ) | {processes.MARK: self._mark},
        )
        self.pid = self._process.pid
        for pipe in (self.sync, self.async_):
            pipe.runner_end.close()
            loop.add_reader(pipe.channel.end.fileno(), partial(self._read_frames, pipe))

    def started_tasks(self) -> list[StartedTask]:
        """The tasks that are executing, and when they started."""
        return self.black_box.read()

    def interrupt_sync_task(self) -> None:
        """Raise an exception in the sync task, by a signal."""
        self._signal(STOP_SIGNAL)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def dump_stack(self, thread: int) -> None:
        """Have the stack of a thread written, even while it executes C code."""
        # Through the descriptor: its offset is shared with the runner.
        os.ftruncate(self._dump, 0)
        os.lseek(self._dump, 0, os.SEEK_SET)
        processes.signal_thread(self.pid, thread, DUMP_SIGNAL)

    def dumped_stack(self) -> str:
        """The text of the last dump."""
        return os.pread(self._dump, 1 << 20, 0).decode(errors="replace")

    def kill(self) -> None:
        """Kill the process group and everything that it started, and wait for the runner's end."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.exit_code = self._process.wait()
        # Processes that left the group are found by the mark in their environment. Those that
        # cleared it too are now children of the keeper, which is a subreaper and starts no others.
        processes.kill_run(self._mark)
        while orphans := set(processes.descendants(os.getpid())) - self._other_descendants:
            processes.kill_all(orphans)

    def read_remaining_frames(self) -> None:
        """Read the frames that the runner wrote before it ended."""
        for pipe in (self.sync, self.async_):
            while self._read_frames(pipe):
                pass

    def close(self) -> None:
        self.sync.close()
        self.async_.close()
        self.black_box.close()
        os.close(self._dump)

    def _read_frames(self, pipe: ExecutorPipe) -> bool:
        try:
            frames = pipe.channel.receive()
        except BlockingIOError:
            return False
        if frames is None:
            self._loop.remove_reader(pipe.channel.end.fileno())
            return False
        for frame in frames:
            self._on_frame(frame)
        return True

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the database URL, which may hold a password."""
    return {name: value for name, value in environment.items() if name != DATABASE_VARIABLE}
