"""The options that say what a job is: the same for a new one and for a change."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from drumline.cli import terminal
from drumline.commands.job.fields import DESCRIPTION_LIMIT, LONGEST_GRACE, MAX_CONCURRENCY
from drumline.domain.jobs.firing import CatchUpMode, ConcurrencyPolicy, FailureAction, OverlapAction
from drumline.domain.jobs.schedule import MAX_JITTER
from drumline.handlers.http.call import MAX_CALLBACK_TIMEOUT, METHODS, ExecType

F = TypeVar("F", bound=Callable[..., Any])


def _choice(words: Any) -> click.Choice[str]:
    return click.Choice([str(word) for word in words], case_sensitive=False)


def _header(value: str) -> tuple[str, str]:
    name, colon, rest = value.partition(":")
    if not colon or not name.strip():
        raise click.BadParameter(f"{value!r} is not NAME:VALUE")
    return name.strip(), rest.strip()


def _body(value: str) -> str:
    """The text itself, or @FILE."""
    if not value.startswith("@"):
        return value
    return _read(Path(value[1:]))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise click.BadParameter(f"{path}: {reason}") from None


def _document(value: str) -> dict[str, Any]:
    """A file of a job's fields, in JSON or TOML."""
    path = Path(value)
    text = _read(path)
    try:
        found = tomllib.loads(text) if path.suffix == ".toml" else terminal.document(text)
    except tomllib.TOMLDecodeError as error:
        raise click.BadParameter(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"{path}: it must hold an object with a job's fields")
    return msgspec.to_builtins(found)  # type: ignore[no-any-return]  # TOML has times of its own


_OPTIONS = (
    click.option("--file", type=_document, metavar="FILE",
                 help="A job's fields in JSON or TOML; flags win over it."),
    click.option("--cron", "cron_expr", metavar="EXPR",
                 help="5 or 6 fields, '@daily 08:00,17:30' or '@after 90s'."),
    click.option("--timezone", metavar="TZ", help="As in Europe/Berlin; UTC if not said."),
    click.option("--url", "target_url", metavar="URL", help="Call this; may hold {{run_id}} …"),
    click.option("--method", "http_method", type=_choice(METHODS)),
    click.option("--header", type=_header, multiple=True, metavar="NAME:VALUE"),
    click.option("--body", "body_template", type=_body, metavar="TEXT", help="Or @FILE."),
    click.option("--exec-type", type=_choice(ExecType),
                 help="ASYNC: the target calls back when it is done."),
    click.option("--callback-timeout", "callback_timeout_sec", metavar="SECONDS",
                 type=click.IntRange(1, int(MAX_CALLBACK_TIMEOUT))),
    click.option("--callback-method", type=_choice(("POST", "PUT"))),
    click.option("--type", "type", type=terminal.TYPE, help="Run a task of this type instead."),
    click.option("--target-type", type=terminal.TYPE, help="Needed if several serve the type."),
    click.option("--param", type=terminal.document, metavar="JSON"),
    click.option("--timeout", "timeout_seconds", type=click.IntRange(1), metavar="SECONDS",
                 help="How long a run may take."),
    click.option("--retry", "retry_policy_json", type=terminal.document, metavar="JSON",
                 help='Such as {"max_attempts": 3, "delay": 1}.'),
    click.option("--overlap", "--overlap-action", "overlap_action", type=_choice(OverlapAction),
                 help="If an earlier run is unfinished."),
    click.option("--failure", "--failure-action", "failure_action", type=_choice(FailureAction),
                 help="If the last run failed."),
    click.option("--max-concurrency", type=click.IntRange(0, MAX_CONCURRENCY), help="0: no limit."),
    click.option("--concurrency", "--concurrency-policy", "concurrency_policy",
                 type=_choice(ConcurrencyPolicy), help="At that limit."),
    click.option("--catch-up", "--catch-up-mode", "catch_up_mode", type=_choice(CatchUpMode),
                 help="What of the firings that were missed."),
    click.option("--misfire-grace", "misfire_grace_seconds", metavar="SECONDS",
                 type=click.IntRange(1, LONGEST_GRACE), help="So late it is not missed yet."),
    click.option("--starts-at", type=terminal.point_in_time, metavar="TIME"),
    click.option("--ends-at", type=terminal.point_in_time, metavar="TIME"),
    click.option("--jitter", "jitter_seconds", type=click.IntRange(0, MAX_JITTER),
                 metavar="SECONDS", help="Spread the starts over so long."),
    click.option("--priority", type=terminal.PRIORITY, help="9 is the most urgent, 5 is usual."),
    click.option("--env", type=terminal.text(64), help="Label: environment."),
    click.option("--description", type=terminal.text(DESCRIPTION_LIMIT)),
    click.option("--disabled", is_flag=True, help="It does not fire until it is enabled."),
)  # fmt: skip


def definition(command: F) -> F:
    """All of them on a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def fields(options: dict[str, Any]) -> dict[str, Any]:
    """A job's fields, as they go to the gateway."""
    found: dict[str, Any] = dict(options.pop("file") or {})
    headers, disabled = options.pop("header"), options.pop("disabled")
    found |= {name: value for name, value in options.items() if value is not None}
    if headers:
        found["headers_json"] = dict(headers)
    if disabled:
        found["status"] = "DISABLED"
    return found
