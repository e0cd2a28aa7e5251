"""A handler in a module of its own, which a fault removes from the running node."""

from __future__ import annotations

from chaos.handlers import TIMEOUT, recorded
from drumline import Task, handler


@handler("chaos.extra", timeout=TIMEOUT)
def run_extra(task: Task) -> None:
    with recorded(task):
        pass
