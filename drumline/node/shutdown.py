"""Stop a node: its processes drain in order, and none is left."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from drumline.config import Settings
from drumline.node import run_dir, supervisor
from drumline.node.run_dir import LiveProcess
from drumline.node.supervisor import Supervisor, SupervisorStopping, SupervisorUnreachable

POLL_SECONDS = 0.05
ACTORS = tuple(kind for kind in run_dir.KINDS if kind not in ("supervisord", "runner"))


def drain(settings: Settings, report: Callable[[str], object]) -> None:
    """Stop all processes, report which ones are stopping, and return when all have ended."""
    path = settings.run_path
    deadline = time.monotonic() + drain_limit(settings)
    try:
        Supervisor(path).shut_down()
    except SupervisorStopping:
        pass
    except SupervisorUnreachable:
        # A dead or stuck supervisord stops no process. Its children drain when it has been killed.
        run_dir.signal_processes(run_dir.live_processes(path, "supervisord"), signal.SIGKILL)
        run_dir.signal_processes(run_dir.live_processes(path, *ACTORS), signal.SIGTERM)
    while live := run_dir.live_processes(path):
        if time.monotonic() > deadline:
            run_dir.signal_processes(live, signal.SIGKILL)
        report(f"Draining: {_stopping(live)}")
        time.sleep(POLL_SECONDS)
    run_dir.remove_leftovers(path)  # clients would wait at a socket that no gateway serves


def drain_limit(settings: Settings) -> float:
    """The longest time a drain takes: the kinds of processes stop one after the other."""
    return len(ACTORS) * supervisor.stop_seconds(settings)


def _stopping(live: list[LiveProcess]) -> str:
    """The processes that stop next; the others still serve them."""
    kind = max((one.kind for one in live if one.kind != "runner"), key=run_dir.KINDS.index)
    return ", ".join(one.name for one in live if one.kind == kind)
