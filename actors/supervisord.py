"""supervisord with preloaded modules, so that its processes start without importing them.

`python -m actors.supervisord -c FILE` imports the modules, waits for a start word on its standard
input, and then runs supervisord. Drumline's programs are forked from it; in a new Python each of
them would import for half a second. If its parent ends before the start word, it ends too.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from supervisor import supervisord
from supervisor.options import ServerOptions

from drumline.cli.main import main as drumline_main
from drumline.node.supervisor import GO

SHARED = (
    "actors.__main__",
    "actors.worker.database_thread",
    "actors.dispatcher_connection",
    "drumline.commands.node.actor",
    "drumline.runner.frames",
    "drumline.store.schema",
    "prometheus_client",
)
"""Modules that most processes import. None may open a file, start a thread or create a socket: all
processes would share it. So not `drumline.telemetry.metrics`, which opens a file per process."""
ARG_START, ARG_END = 45, 46
"""Positions of the arguments' addresses in /proc/self/stat, counted after the program's name."""


class Waker:
    """Wakes supervisord's loop at each signal; by itself the loop polls once a second."""

    def __init__(self) -> None:
        self.out, self._in = os.pipe()
        os.set_blocking(self._in, False)
        signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def handle_read_event(self) -> None:
        # One turn of the loop starts programs and then reaps children: a restart takes two turns.
        if any(os.read(self.out, 4096)):
            os.write(self._in, b"\0")


class Options(ServerOptions):  # type: ignore[misc]  # supervisor is not typed
    """supervisord's options, with forked Drumline programs and a loop that wakes at signals."""

    def setsignals(self) -> None:
        super().setsignals()
        waker = Waker()
        self.get_socket_map()[waker.out] = waker

    def execve(self, filename: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        if Path(filename).name == "drumline" and argv[1:2] == ["actor"]:
            os._exit(_become(argv, env))
        super().execve(filename, argv, env)


def _become(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a Drumline program in this forked process as if after an exec; returns its exit code."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[:] = argv
    _show(argv)
    try:
        drumline_main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _show(argv: Sequence[str]) -> None:
    """Make `ps` show these arguments."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[ARG_START]), int(fields[ARG_END])
    words = b"\0".join(map(os.fsencode, argv))[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, words, len(words))


def main() -> None:
    # structlog imports rich, if present, to draw tracebacks on terminals. The logs are JSON, and
    # without rich a sixth of the import time and some megabytes are saved.
    sys.modules["rich"] = None  # type: ignore[assignment]  # marks it as absent for the import system
    for name in SHARED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # keeps the collector from writing to pages that forked processes share
    if os.read(0, len(GO)) != GO:
        raise SystemExit(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    supervisord.ServerOptions = Options
    supervisord.main()


if __name__ == "__main__":
    main()
