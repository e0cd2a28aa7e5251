"""The store for the server halves of commands, imported at its first use.

The CLI imports the files of all commands but runs no server halves; SQLAlchemy would add 190 ms to
each call of `drumline`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drumline.store import schema as schema
    from drumline.store import tables as tables
    from drumline.store.admin import audit as audit
    from drumline.store.admin import tokens as tokens
    from drumline.store.batch import batches as batches
    from drumline.store.batch import operations as operations
    from drumline.store.job import callbacks as callbacks
    from drumline.store.job import decisions as decisions
    from drumline.store.job import firings as firings
    from drumline.store.job import jobs as jobs
    from drumline.store.node import handlers as handlers
    from drumline.store.node import keepers as keepers
    from drumline.store.node import pauses as pauses
    from drumline.store.sweep import sweep_log as sweep_log
    from drumline.store.sweep import sweeps as sweeps
    from drumline.store.task import instances as instances
    from drumline.store.task import runs as runs
    from drumline.store.task import scan as scan
    from drumline.store.task import tasks as tasks
else:
    _GROUPS = {
        "admin": ("audit", "tokens"),
        "batch": ("batches", "operations"),
        "job": ("callbacks", "decisions", "firings", "jobs"),
        "node": ("handlers", "keepers", "pauses"),
        "sweep": ("sweep_log", "sweeps"),
        "task": ("instances", "runs", "scan", "tasks"),
    }
    _PACKAGE = {name: f".{group}" for group, names in _GROUPS.items() for name in names}

    def __getattr__(name: str) -> Any:
        return importlib.import_module(f"drumline.store{_PACKAGE.get(name, '')}.{name}")
