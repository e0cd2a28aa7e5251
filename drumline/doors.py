"""What the control socket and REST have in common: how a command is read, done, counted and
audited."""

from __future__ import annotations

from typing import Any

import structlog

from drumline import metrics
from drumline.commands import trail
from drumline.commands.base import Command, Context, carry_out, read
from drumline.errors import DrumlineError

log = structlog.get_logger()


class Failed(DrumlineError):
    """an internal error; see the log"""


def have_done(
    kind: type[Command],
    arguments: dict[str, Any],
    request_id: str,
    context: Context,
    *,
    strict: bool = True,
) -> dict[str, Any]:
    """Have a command done. Whatever goes wrong is one of our errors."""
    result = "ok"
    try:
        return carry_out(read(kind, arguments, strict), request_id, context)
    except DrumlineError as error:
        result = error.code
        trail.note_refused(kind, arguments, error, request_id, context)
        raise
    except Exception:
        result = "internal"
        log.exception("A command failed.", action="command_failed", command=kind.name)
        # What is not ours is not explained to strangers.
        failed = Failed()
        trail.note_refused(kind, arguments, failed, request_id, context)
        raise failed from None
    finally:
        metrics.commands.labels(kind.name, result).inc()
