"""A keeper's handle on its runner process: the lanes, the tickets, and the end of it."""

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
"""16,384 tickets: more than a keeper ever holds, so that it never waits for room in the pipe."""

DATABASE_VARIABLE = "DRUMLINE_DATABASE_URL"


class ExecutorPipe:
    """One lane's channel and ticket pipe, as the keeper holds them.

    The keeper never waits for its runner: what the pipe does not take now is written when it can.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.channel = Channel(ours, ToKeeper)
        self._outgoing = bytearray()
        self.ticket_out, self.ticket_in = os.pipe()
        os.set_blocking(self.ticket_out, False)
        with suppress(PermissionError):  # of a user with very many pipes; 4,096 fit at least
            fcntl.fcntl(self.ticket_in, fcntl.F_SETPIPE_SZ, TICKET_BYTES)

    def hand(
        self, dues: Sequence[DueTask], callbacks: dict[int, tuple[str, str]] | None = None
    ) -> None:
        """Describe tasks, then let them start."""
        self.send(RunTasks(tuple(dues), callbacks or {}))
        os.write(self.ticket_in, encode_tickets(dues))

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
            self._outgoing.clear()  # the runner is dead; its keeper will learn it
        self._loop.remove_writer(end.fileno())

    def take_back(self) -> list[int]:
        """Take all tickets that are still there: those tasks will not start."""
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
    """One runner, from its start to after its death."""

    def __init__(
        self,
        loop: EventLoop,
        blackbox: Path,
        imports: Sequence[str],
        received: Callable[[Frame], None],
    ) -> None:
        self._loop = loop
        self._mark = str(blackbox)
        self._received = received
        self.sync, self.async_ = ExecutorPipe(loop), ExecutorPipe(loop)
        self.box = BlackBox(blackbox)
        self.box.clear()
        self._dump = os.memfd_create("stacks")
        self._others = set(processes.descendants(os.getpid()))
        self.exit_code: int | None = None
        start = RunnerConfig(
            keeper_pid=os.getpid(),
            sync_channel=self.sync.theirs.fileno(),
            sync_tickets=self.sync.ticket_out,
            async_channel=self.async_.theirs.fileno(),
            async_tickets=self.async_.ticket_out,
            dump=self._dump,
            blackbox=str(blackbox),
            imports=tuple(imports),
        )
        # A group of its own: the supervisor's signals to our group must not reach a running task.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "drumline.runner", msgspec.json.encode(start).decode()],
            pass_fds=start.descriptors(),
            process_group=0,
            stdin=subprocess.DEVNULL,
            env=_without_keys(os.environ) | {processes.MARK: self._mark},
        )
        self.pid = self._process.pid
        for lane in (self.sync, self.async_):
            lane.theirs.close()
            loop.add_reader(lane.channel.end.fileno(), partial(self._read, lane))

    def running(self) -> list[StartedTask]:
        """What runs now, and since when."""
        return self.box.read()

    def ask(self) -> None:
        """Ask the sync task to stop."""
        self._signal(STOP_SIGNAL)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def dump(self, thread: int) -> None:
        """Have the stack of a thread written, even of one that is stuck in C."""
        # By the descriptor: its position is shared with the runner, a buffer is not.
        os.ftruncate(self._dump, 0)
        os.lseek(self._dump, 0, os.SEEK_SET)
        processes.signal_thread(self.pid, thread, DUMP_SIGNAL)

    def stack(self) -> str:
        """What the last dump wrote."""
        return os.pread(self._dump, 1 << 20, 0).decode(errors="replace")

    def kill(self) -> None:
        """Kill the group and all that came from it, and wait until it is dead."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.exit_code = self._process.wait()
        # What left the group is found by our mark; what threw that away too has come to us as an
        # orphan, if we are a subreaper: a keeper has no children but its runner's.
        processes.kill_run(self._mark)
        while orphans := set(processes.descendants(os.getpid())) - self._others:
            processes.kill_all(orphans)

    def drain(self) -> None:
        """Read what the runner wrote before it died."""
        for lane in (self.sync, self.async_):
            while self._read(lane):
                pass

    def close(self) -> None:
        self.sync.close()
        self.async_.close()
        self.box.close()
        os.close(self._dump)

    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def _read(self, lane: ExecutorPipe) -> bool:
        try:
            frames = lane.channel.receive()
        except BlockingIOError:
            return False
        if frames is None:
            self._loop.remove_reader(lane.channel.end.fileno())
            return False
        for frame in frames:
            self._received(frame)
        return True

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """A runner has no business with Drumline's database."""
    return {name: value for name, value in environment.items() if name != DATABASE_VARIABLE}
