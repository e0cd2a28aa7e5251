"""The end of a node: everything drains in order, and nothing is left behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from drumline import node, supervisor
from drumline.config import Settings
from drumline.node import Living
from drumline.supervisor import Supervisor, SupervisorGone, SupervisorStopping

POLL_SECONDS = 0.05
ACTORS = tuple(kind for kind in node.KINDS if kind not in ("supervisord", "runner"))


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
        node.end(node.living(path, "supervisord"), signal.SIGKILL)
        node.end(node.living(path, *ACTORS), signal.SIGTERM)
    while alive := node.living(path):
        if time.monotonic() > deadline:
            node.end(alive, signal.SIGKILL)
        say(f"Draining: {_who(alive)}")
        time.sleep(POLL_SECONDS)
    node.clear_remains(path)  # so that nobody waits at a socket that nobody serves


def longest(settings: Settings) -> float:
    """How long it may take: the kinds of processes stop one after the other."""
    return len(ACTORS) * supervisor.stop_seconds(settings)


def _who(alive: list[Living]) -> str:
    """Those whose turn it is to stop; the others still serve them."""
    turn = max((one.kind for one in alive if one.kind != "runner"), key=node.KINDS.index)
    return ", ".join(one.name for one in alive if one.kind == turn)
