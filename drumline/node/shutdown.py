"""The end of a node: everything drains in order, and nothing is left behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from drumline.config import Settings
from drumline.node import run_dir, supervisor
from drumline.node.run_dir import LiveProcess
from drumline.node.supervisor import Supervisor, SupervisorGone, SupervisorStopping

POLL_SECONDS = 0.05
ACTORS = tuple(kind for kind in run_dir.KINDS if kind not in ("supervisord", "runner"))


def drain(settings: Settings, say: Callable[[str], object]) -> None:
    """Stop everything, say who is still at work, and return when all are gone."""
    path = settings.run_path
    deadline = time.monotonic() + longest(settings)
    try:
        Supervisor(path).shut_down()
    except SupervisorStopping:
        pass
    except SupervisorGone:
        # Dead or stuck, it stops nobody. Its children drain when it dies, so let it be dead.
        run_dir.end(run_dir.living(path, "supervisord"), signal.SIGKILL)
        run_dir.end(run_dir.living(path, *ACTORS), signal.SIGTERM)
    while alive := run_dir.living(path):
        if time.monotonic() > deadline:
            run_dir.end(alive, signal.SIGKILL)
        say(f"Draining: {_who(alive)}")
        time.sleep(POLL_SECONDS)
    run_dir.clear_remains(path)  # so that nobody waits at a socket that nobody serves


def longest(settings: Settings) -> float:
    """How long it may take: the kinds of processes stop one after the other."""
    return len(ACTORS) * supervisor.stop_seconds(settings)


def _who(alive: list[LiveProcess]) -> str:
    """Those whose turn it is to stop; the others still serve them."""
    turn = max((one.kind for one in alive if one.kind != "runner"), key=run_dir.KINDS.index)
    return ", ".join(one.name for one in alive if one.kind == turn)
