"""Whether a node can accept and run tasks: read by `drumline up`, `drumline status` and /readyz."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.errors import DrumlineError

if TYPE_CHECKING:
    from drumline.command_layer.base import Context


def missing(context: Context) -> list[str]:
    """What is missing, in words; a node that lacks nothing is ready."""
    from drumline.store.node import handlers

    found = []
    region = context.settings.region
    try:
        if not context.db.read(lambda tx: handlers.known(tx, region), tries=1):
            found.append("no runner has announced its handlers")
    except DrumlineError as error:
        found.append(str(error))
    try:
        if not context.dispatcher.queue_status().pool_size:
            found.append("no worker has registered")
    except DrumlineError as error:
        found.append(str(error))
    return found
