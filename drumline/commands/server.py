"""The store, for the server halves of commands; imported when one of them first runs.

The CLI loads every command's file and needs none of this: SQLAlchemy alone would cost each call
of `drumline` 190 ms.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drumline.store import audit as audit
    from drumline.store import batches as batches
    from drumline.store import callbacks as callbacks
    from drumline.store import decisions as decisions
    from drumline.store import firings as firings
    from drumline.store import handlers as handlers
    from drumline.store import instances as instances
    from drumline.store import jobs as jobs
    from drumline.store import keepers as keepers
    from drumline.store import pauses as pauses
    from drumline.store import runs as runs
    from drumline.store import scan as scan
    from drumline.store import schema as schema
    from drumline.store import spreads as spreads
    from drumline.store import sweep_log as sweep_log
    from drumline.store import sweeps as sweeps
    from drumline.store import tables as tables
    from drumline.store import tasks as tasks
    from drumline.store import tokens as tokens
else:

    def __getattr__(name: str) -> Any:
        return importlib.import_module(f"drumline.store.{name}")
