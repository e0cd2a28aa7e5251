"""Run the tests with a private MariaDB and temporary directory, and remove everything afterwards.

    python -m tests.run [--no-mariadb] -- COMMAND…

The command finds the server by DRUMLINE_TEST_MARIADB_URL and the directory by TMPDIR. INT, TERM and
HUP interrupt the command as Ctrl-C does. A command that has not ended after STOP_SECONDS, or gets a
second signal, is killed. No process and no file of the run remains, however the command ends.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from drumline.system import processes, procfs
from tests.mariadb import URL_VARIABLE, MariaDB

INTERRUPTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
STOP_SECONDS = 15.0
"""How long an interrupted command may take to print its summary and to stop what it started."""


def run(command: list[str], with_mariadb: bool) -> int:
    """Run a command; its exit status."""
    # Orphans of the tests become children of this process, where they can be found and killed.
    processes.become_subreaper()
    for number in INTERRUPTS:
        # Ignored, INT would be ignored by all descendants too, and tests press Ctrl-C.
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    environment = os.environ.copy()
    environment.pop(URL_VARIABLE, None)
    # Hundreds of processes start: without stored bytecode each would compile every module again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with ExitStack() as stack:
        environment["TMPDIR"] = str(stack.enter_context(_temporary_directory()))
        server = stack.enter_context(closing(MariaDB())) if with_mariadb else None
        stack.callback(_kill_descendants)
        if server is not None:
            server.start()
            environment[URL_VARIABLE] = server.url()
        status = _supervise(command, environment)
        _report_leaks(server)
        return status


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    """A directory for everything that the run writes. Its path is short, as sockets require."""
    path = Path(tempfile.mkdtemp(prefix="dl-"))
    tempfile.tempdir = str(path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _supervise(command: list[str], environment: dict[str, str]) -> int:
    """Run a command, pass interrupts on to it, and reap orphans; its exit status."""
    signals = INTERRUPTS | {signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    child = subprocess.Popen(
        command,
        env=environment,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, signals),
    )
    deadline: float | None = None
    while (status := _reap(child.pid)) is None:
        timeout = 3600.0 if deadline is None else max(0.0, deadline - time.monotonic())
        received = signal.sigtimedwait(signals, timeout)
        if received is not None and received.si_signo == signal.SIGCHLD:
            continue
        if deadline is not None:  # it has passed, or this is the second signal
            child.kill()
        elif received is not None:
            deadline = time.monotonic() + STOP_SECONDS
            # A terminal, which has no pid, has sent its Ctrl-C to the command as well.
            if received.si_pid != 0:
                _interrupt(child.pid)
    child.returncode = status
    return status if status >= 0 else 128 - status


def _interrupt(pid: int) -> None:
    """Interrupt pytest and its workers, as a Ctrl-C in the terminal does."""
    workers = [seen.pid for seen in procfs.read_all() if seen.parent == pid]
    for each in (pid, *workers):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGINT)


def _reap(wanted: int | None = None) -> int | None:
    """Reap all children that have ended; the exit status of the wanted one if it is one of them."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == wanted:
                return os.waitstatus_to_exitcode(status)
            if pid == 0:
                break
    return None


def _report_leaks(server: MariaDB | None) -> None:
    """Print the processes that tests left running."""
    for pid in processes.descendants(os.getpid()):
        if server is None or pid != server.pid:
            command = " ".join(procfs.arguments(pid))
            print(f"left running by a test: {pid} {command}", file=sys.stderr)


def _kill_descendants() -> None:
    while pids := processes.descendants(os.getpid()):
        processes.kill_all(pids)
        _reap()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--", *words] if words:
            sys.exit(run(words, with_mariadb=True))
        case ["--no-mariadb", "--", *words] if words:
            sys.exit(run(words, with_mariadb=False))
        case _:
            sys.exit("usage: python -m tests.run [--no-mariadb] -- COMMAND...")
