"""supervisord, with what its processes need imported before it starts the first of them.

`python -m actors.supervisord -c FILE` imports, waits for a word on its standard input, and is
supervisord from then on. Its own programs are forked and begin at once; a Python of their own
would import for half a second each. Whoever ends before that word ends this too.
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
"""What most processes import. Nothing that opens a file, starts a thread or makes a socket: it
would be shared too. So not `drumline.telemetry.metrics`, which opens a file for each process."""
ARG_START, ARG_END = 45, 46
"""Where the arguments lie in memory, as places in /proc/self/stat after the program's name."""


class Waker:
    """Wakes supervisord's loop when a signal comes; by itself it would look once a second."""

    def __init__(self) -> None:
        self.out, self._in = os.pipe()
        os.set_blocking(self._in, False)
        signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def handle_read_event(self) -> None:
        # A turn of the loop starts what is missing and then looks who died: that takes another.
        if any(os.read(self.out, 4096)):
            os.write(self._in, b"\0")


class Options(ServerOptions):  # type: ignore[misc]  # supervisor is not typed
    """supervisord as it is, but for how a child becomes its program, and how soon it knows."""

    def setsignals(self) -> None:
        super().setsignals()
        waker = Waker()
        self.get_socket_map()[waker.out] = waker

    def execve(self, filename: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        if Path(filename).name == "drumline" and argv[1:2] == ["actor"]:
            os._exit(_become(argv, env))
        super().execve(filename, argv, env)


def _become(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Be what the new program would be after an exec; the exit code."""
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
    """Have `ps` show these arguments."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[ARG_START]), int(fields[ARG_END])
    words = b"\0".join(map(os.fsencode, argv))[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, words, len(words))


def main() -> None:
    # structlog loads rich where it finds it, to draw tracebacks on terminals. Our logs are JSON,
    # and not to load it saves a sixth of the imports and some megabytes.
    sys.modules["rich"] = None  # type: ignore[assignment]  # what the import system calls absent
    for name in SHARED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the collector would write to pages that are shared as long as nobody does
    if os.read(0, len(GO)) != GO:
        raise SystemExit(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    supervisord.ServerOptions = Options
    supervisord.main()


if __name__ == "__main__":
    main()
