"""Runs a command for a front end: arguments are checked, errors audited, results counted."""

from __future__ import annotations

from typing import Any

import structlog

from drumline.command_layer import audit_trail
from drumline.command_layer.base import Command, Context, read, run_command
from drumline.errors import DrumlineError
from drumline.telemetry import metrics

log = structlog.get_logger()


class Failed(DrumlineError):
    """an internal error; see the log"""


def execute(
    kind: type[Command],
    arguments: dict[str, Any],
    request_id: str,
    context: Context,
    *,
    strict: bool = True,
) -> dict[str, Any]:
    """Run a command. Every error that it raises is a DrumlineError."""
    result = "ok"
    try:
        return run_command(read(kind, arguments, strict), request_id, context)
    except DrumlineError as error:
        result = error.code
        audit_trail.record_refusal(kind, arguments, error, request_id, context)
        raise
    except Exception:
        result = "internal"
        log.exception("Command failed", action="command_failed", command=kind.name)
        # The caller gets no details: a traceback may hold secrets.
        failed = Failed()
        audit_trail.record_refusal(kind, arguments, failed, request_id, context)
        raise failed from None
    finally:
        metrics.commands.labels(kind.name, result).inc()
