"""`drumline actor`: run one of the processes, in the foreground. supervisord does."""

from __future__ import annotations

import sys

import click

from drumline.commands import groups


@groups.root.command("actor", epilog="drumline actor worker-1")
@click.argument("name")
def actor(name: str) -> None:
    """Run one process: scanner, dispatcher, worker-N, ticker, reaper, gateway."""
    # structlog loads rich where it finds it, to draw tracebacks on terminals. Our logs are JSON,
    # and not loading it saves each process 65 of 420 ms and some megabytes at its start.
    sys.modules["rich"] = None  # type: ignore[assignment]  # what the import system calls absent
    # The one place where the library knows its processes: it is their launcher.
    from actors.__main__ import main

    _end_with_supervisor()
    main(name)


def _end_with_supervisor() -> None:
    """Drain when supervisord dies: what nobody looks after would stand in the next one's way."""
    import os

    if os.environ.get("SUPERVISOR_ENABLED") != "1":
        return
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    supervisor = os.getppid()
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() != supervisor or supervisor == 1:
        raise SystemExit(1)  # it died before the kernel knew what we wish
