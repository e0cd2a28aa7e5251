"""`drumline actor`: run one process in the foreground, as supervisord does."""

from __future__ import annotations

import click

from drumline.cli import groups


@groups.root.command("actor", epilog="drumline actor worker-1")
@click.argument("name")
def actor(name: str) -> None:
    """Run one process: scanner, dispatcher, worker-N, ticker, reaper, gateway."""
    # The only import of actors in this package: here their processes start.
    from actors.__main__ import main

    _end_with_supervisor()
    main(name)


def _end_with_supervisor() -> None:
    """Have the kernel send SIGTERM when supervisord dies: else the next one cannot start."""
    import os

    if os.environ.get("SUPERVISOR_ENABLED") != "1":
        return
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    supervisor = os.getppid()
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() != supervisor or supervisor == 1:
        raise SystemExit(1)  # it died before prctl was called
