"""`shell`: runs a command and keeps the end of what it says. Off unless the settings turn it on.

Whoever may submit tasks may then run anything as the worker's user, so it is a decision of the
node's operator: `shell = true`. The command is a list and no shell reads it, unless asked for.
It gets an environment of its own, without the worker's secrets, and when it ends, or is ended,
everything that it started ends with it.
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

KEPT = 16 * 1024
"""Bytes kept of each of the two outputs: the last ones, they say how it ended."""
TAIL = 2000
"""Characters of the output that an error shows."""
GRACE = 0.5
"""Seconds between TERM and KILL. The keeper waits longer than that for us."""
SHELL = "/bin/sh"
OURS = "DRUMLINE_SHELL_RUN"
"""In the environment of all that a command starts, so that what left its group is found too."""
PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", MARK)

Text = Annotated[str, Meta(min_length=1)]
Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class CommandFailed(DrumlineError):
    """{what}{output}"""


class ShellParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A command and the world it runs in."""

    command: Annotated[list[str], Meta(min_length=1)] | Text
    """A list of words; or a text, which is cut into words as a shell would, but not run by one."""
    shell: bool = False
    """Have a shell run the text: pipes, variables, patterns."""
    cwd: Text | None = None
    env: dict[Variable, str] = msgspec.field(default_factory=dict)
    pass_env: tuple[Variable, ...] = ()
    """Variables to hand on from the worker's environment: secrets that must not be stored."""
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
        made = {name: os.environ[name] for name in PASSED if name in os.environ}
        for name in self.pass_env:
            if name not in os.environ:
                raise WrongUse(field="param.pass_env", reason=f"the worker has no variable {name}")
            made[name] = os.environ[name]
        ids = {
            "DRUMLINE_TASK_ID": str(task.id),
            "DRUMLINE_ATTEMPT": str(task.attempt),
            "DRUMLINE_FENCE": str(task.fence),
            "DRUMLINE_TARGET_ID": task.target_id or "",
        }
        return {**made, **self.env, **ids, OURS: mark}


class Shell(Handler):
    target_type: ClassVar[str] = "shell"
    types: ClassVar[tuple[str, ...]] = ("shell",)
    timeout: ClassVar[float | None] = 300.0
    param_type: ClassVar[Any] = ShellParam

    def process(self, task: Task) -> dict[str, Any]:
        """Run a command; succeeds with its exit code, the end of its output and its time."""
        try:
            param = msgspec.convert(task.param or {}, ShellParam)
        except msgspec.ValidationError as error:
            raise WrongUse(field="param", reason=str(error)) from None
        started = time.monotonic()
        mark = secrets.token_hex(8)
        with _started(param, param.environment(task, mark), mark) as child:
            out, err = _talk(child, param.input.encode(), mark)
        seconds = round(time.monotonic() - started, 3)
        code = child.returncode
        if code not in param.ok_codes:
            what = f"signal {-code} ended it" if code < 0 else f"exit code {code}"
            shown = (str(err).strip() or str(out).strip())[-TAIL:]
            raise CommandFailed(
                what=f"the command failed: {what} after {seconds:g} s",
                output=f"\n{shown}" if shown else "",
            )
        return {
            "exit_code": code,
            "stdout": str(out),
            "stderr": str(err),
            "cut": out.cut + err.cut,
            "seconds": seconds,
        }


class Tail:
    """The last bytes of an output, and how many are missing before them."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.cut = 0

    def add(self, data: bytes) -> None:
        self._data += data
        surplus = len(self._data) - KEPT
        if surplus > 0:
            del self._data[:surplus]
            self.cut += surplus

    def __str__(self) -> str:
        """As text of at most as many bytes of JSON: a control character takes six of them."""
        text = self._data.decode(errors="replace")
        while len(msgspec.json.encode(text)) > KEPT + 2:
            text = text[len(text) // 8 + 1 :]
        return text


@contextmanager
def _started(
    param: ShellParam, environment: dict[str, str], mark: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The command, in a group of its own; at the end nothing of it is left, whatever happened."""
    words = param.words()
    try:
        with _asked_later() as asked:
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
        asked()
        yield child
    except BaseException:
        # Asked to stop, or killed by a limit: let it clean up, but not for long.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
        raise
    finally:
        _end(child, mark)


@contextmanager
def _asked_later() -> Iterator[Callable[[], None]]:
    """Put off an ask to stop: while a process is being started there is nobody yet to stop. What
    is yielded lets it strike."""
    struck: list[tuple[Any, ...]] = []
    before = signal.signal(STOP_SIGNAL, lambda *details: struck.append(details))

    def strike() -> None:
        if struck and callable(before):
            before(*struck[0])

    try:
        yield strike
    finally:
        signal.signal(STOP_SIGNAL, before)


def _kill_all_of(child: subprocess.Popen[bytes], mark: str) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    while strays := _carrying(mark, besides=child.pid):
        kill_all(strays)


def _end(child: subprocess.Popen[bytes], mark: str) -> None:
    _kill_all_of(child, mark)
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _carrying(mark: str, besides: int) -> list[int]:
    """What a command started and moved out of its group. The dead have no environment."""
    wanted, found = f"{OURS}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != besides:
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _talk(child: subprocess.Popen[bytes], data: bytes, mark: str) -> tuple[Tail, Tail]:
    """Write its input and read its output until it has ended and nothing is left to read."""
    out, err = Tail(), Tail()
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
                    if isinstance(key.data, Tail):
                        if not _read(key.fd, key.data):
                            ready.unregister(key.fileobj)
                    elif key.fd == end:
                        # What it left behind would go on to write, or just hold the pipes open.
                        _kill_all_of(child, mark)
                        ready.unregister(end)
                    elif child.stdin is not None and not (data := _write(child.stdin, data)):
                        ready.unregister(child.stdin)
                        child.stdin.close()
        return out, err
    finally:
        os.close(end)


def _read(pipe: int, tail: Tail) -> bool:
    """Some of what there is. False at the end."""
    data = os.read(pipe, 65536)
    tail.add(data)
    return bool(data)


def _write(pipe: IO[bytes], data: bytes) -> bytes:
    """Some of the input; what is left of it."""
    try:
        return data[os.write(pipe.fileno(), data[:65536]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return b""  # it does not want to hear more


def _is_on() -> bool:
    from drumline import config

    return config.load().shell


if _is_on():
    register(Shell.target_type, Shell)
