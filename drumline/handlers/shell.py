"""The `shell` handler: runs a command and keeps the end of its output. Off by default.

With it, everybody who may submit tasks can run any command as the worker's user, so the operator
of a node must set `shell = true`. The command is a list that no shell interprets, unless the param
asks for a shell. It gets its own environment, without the worker's secrets. When it ends or is
stopped, all processes that it started are killed.
"""

from __future__ import annotations

import os
import secrets
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from drumline.errors import DrumlineError, WrongUse
from drumline.handlers.base import STOP_SIGNAL, Handler
from drumline.handlers.registry import register
from drumline.system.processes import MARK, kill_all
from drumline.task import Task

OUTPUT_LIMIT = 16 * 1024
"""Bytes kept of stdout and of stderr: the last ones, which usually tell how the command ended."""
ERROR_OUTPUT_LIMIT = 2000
"""Characters of the output in an error message."""
GRACE = 0.5
"""Seconds between TERM and KILL; the keeper waits longer before it kills the runner."""
SHELL = "/bin/sh"
MARK_VARIABLE = "DRUMLINE_SHELL_RUN"
"""Set for all processes of a command, to find also those that left its process group."""
COPIED_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    MARK,
)

Text = Annotated[str, Meta(min_length=1)]
Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class CommandFailed(DrumlineError):
    """{what}{output}"""


class ShellParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A command, its directory and its environment."""

    command: Annotated[list[str], Meta(min_length=1)] | Text
    """A list of words, or a text that is split into words like in a shell but not run by one."""
    shell: bool = False
    """Have a shell run the text, with pipes, variables and patterns."""
    cwd: Text | None = None
    env: dict[Variable, str] = msgspec.field(default_factory=dict)
    pass_env: tuple[Variable, ...] = ()
    """Variables to copy from the worker's environment, such as secrets that must not be stored."""
    input: str = ""
    ok_codes: tuple[Annotated[int, Meta(ge=0, le=255)], ...] = (0,)

    def words(self) -> list[str]:
        if self.shell:
            if not isinstance(self.command, str):
                raise WrongUse(reason="param.command must be a text if shell is true")
            return [SHELL, "-c", self.command]
        if not isinstance(self.command, str):
            return self.command
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise WrongUse(field="param.command", reason=str(error)) from None
        if not words:
            raise WrongUse(reason="param.command is empty")
        return words

    def environment(self, task: Task, mark: str) -> dict[str, str]:
        variables = {name: os.environ[name] for name in COPIED_VARIABLES if name in os.environ}
        for name in self.pass_env:
            if name not in os.environ:
                raise WrongUse(field="param.pass_env", reason=f"the worker has no variable {name}")
            variables[name] = os.environ[name]
        ids = {
            "DRUMLINE_TASK_ID": str(task.id),
            "DRUMLINE_ATTEMPT": str(task.attempt),
            "DRUMLINE_FENCE": str(task.fence),
            "DRUMLINE_TARGET_ID": task.target_id or "",
        }
        return {**variables, **self.env, **ids, MARK_VARIABLE: mark}


class Shell(Handler):
    target_type: ClassVar[str] = "shell"
    types: ClassVar[tuple[str, ...]] = ("shell",)
    timeout: ClassVar[float | None] = 300.0
    param_type: ClassVar[Any] = ShellParam

    def process(self, task: Task) -> dict[str, Any]:
        """Run a command; returns its exit code, the end of its output and its duration."""
        try:
            param = msgspec.convert(task.param or {}, ShellParam)
        except msgspec.ValidationError as error:
            raise WrongUse(field="param", reason=str(error)) from None
        started = time.monotonic()
        mark = secrets.token_hex(8)
        with _run_process(param, param.environment(task, mark), mark) as child:
            out, err = _communicate(child, param.input.encode(), mark)
        seconds = round(time.monotonic() - started, 3)
        code = child.returncode
        if code not in param.ok_codes:
            reason = f"signal {-code}" if code < 0 else f"exit code {code}"
            shown = (str(err).strip() or str(out).strip())[-ERROR_OUTPUT_LIMIT:]
            raise CommandFailed(
                what=f"the command failed: {reason} after {seconds:g} s",
                output=f"\n{shown}" if shown else "",
            )
        return {
            "exit_code": code,
            "stdout": str(out),
            "stderr": str(err),
            "cut": out.cut + err.cut,
            "seconds": seconds,
        }


class OutputTail:
    """The last bytes of an output, and the number of bytes cut off before them."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.cut = 0

    def add(self, data: bytes) -> None:
        self._data += data
        surplus = len(self._data) - OUTPUT_LIMIT
        if surplus > 0:
            del self._data[:surplus]
            self.cut += surplus

    def __str__(self) -> str:
        """As text that fits into the limit as JSON, where a control character takes six bytes."""
        text = self._data.decode(errors="replace")
        while len(msgspec.json.encode(text)) > OUTPUT_LIMIT + 2:
            text = text[len(text) // 8 + 1 :]
        return text


@contextmanager
def _run_process(
    param: ShellParam, environment: dict[str, str], mark: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in its own process group; at the end, kill all that is left of it."""
    words = param.words()
    try:
        with _delayed_stop() as raise_stop:
            child = subprocess.Popen(
                words,
                cwd=param.cwd,
                env=environment,
                stdin=subprocess.PIPE if param.input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
    except (OSError, ValueError) as error:
        raise WrongUse(reason=f"the command cannot be started: {error}") from None
    try:
        raise_stop()
        yield child
    except BaseException:
        # The task is stopped: let the command clean up, but not for long.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
        raise
    finally:
        _kill_and_close(child, mark)


@contextmanager
def _delayed_stop() -> Iterator[Callable[[], None]]:
    """Delay a stop signal while the process is being started, or the process would not be known to
    the cleanup. The yielded function raises the stop that came meanwhile."""
    received: list[tuple[Any, ...]] = []
    before = signal.signal(STOP_SIGNAL, lambda *details: received.append(details))

    def raise_stop() -> None:
        if received and callable(before):
            before(*received[0])

    try:
        yield raise_stop
    finally:
        signal.signal(STOP_SIGNAL, before)


def _kill_processes(child: subprocess.Popen[bytes], mark: str) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    while others := _marked_processes(mark, besides=child.pid):
        kill_all(others)


def _kill_and_close(child: subprocess.Popen[bytes], mark: str) -> None:
    _kill_processes(child, mark)
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _marked_processes(mark: str, besides: int) -> list[int]:
    """Processes of the command that have left its group. A zombie has no environment."""
    wanted, found = f"{MARK_VARIABLE}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != besides:
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _communicate(
    child: subprocess.Popen[bytes], data: bytes, mark: str
) -> tuple[OutputTail, OutputTail]:
    """Write the input and read the output, until the command has ended and all output is read."""
    out, err = OutputTail(), OutputTail()
    end = os.pidfd_open(child.pid)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(end, selectors.EVENT_READ)
            for pipe, tail in ((child.stdout, out), (child.stderr, err)):
                if pipe is not None:
                    ready.register(pipe, selectors.EVENT_READ, tail)
            if child.stdin is not None:
                os.set_blocking(child.stdin.fileno(), False)
                ready.register(child.stdin, selectors.EVENT_WRITE)
            while ready.get_map():
                for key, _ in ready.select():
                    if isinstance(key.data, OutputTail):
                        if not _read(key.fd, key.data):
                            ready.unregister(key.fileobj)
                    elif key.fd == end:
                        # Processes left behind could go on writing, or keep the pipes open.
                        _kill_processes(child, mark)
                        ready.unregister(end)
                    elif child.stdin is not None and not (data := _write(child.stdin, data)):
                        ready.unregister(child.stdin)
                        child.stdin.close()
        return out, err
    finally:
        os.close(end)


def _read(pipe: int, tail: OutputTail) -> bool:
    """Read some of the output; False at its end."""
    data = os.read(pipe, 65536)
    tail.add(data)
    return bool(data)


def _write(pipe: IO[bytes], data: bytes) -> bytes:
    """Write some of the input; returns the rest."""
    try:
        return data[os.write(pipe.fileno(), data[:65536]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return b""  # the command has closed its input


def _is_on() -> bool:
    from drumline import config

    return config.load().shell


if _is_on():
    register(Shell.target_type, Shell)
