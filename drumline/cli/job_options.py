"""The options that define a job, of `job create` and `job update`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from drumline.cli import option_types
from drumline.commands.job.fields import DESCRIPTION_LIMIT, LONGEST_GRACE, MAX_CONCURRENCY
from drumline.domain.jobs.catch_up import CatchUpMode
from drumline.domain.jobs.firing import ConcurrencyPolicy, FailureAction, OverlapAction
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
    """A text, or the content of @FILE."""
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
    """A file with the fields of a job, in JSON or TOML."""
    path = Path(value)
    text = _read(path)
    try:
        found = tomllib.loads(text) if path.suffix == ".toml" else option_types.json_value(text)
    except tomllib.TOMLDecodeError as error:
        raise click.BadParameter(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"{path}: it must contain an object with the fields of a job")
    return msgspec.to_builtins(found)  # type: ignore[no-any-return]  # TOML has times of its own


_OPTIONS = (
    click.option("--file", type=_document, metavar="FILE",
                 help="The fields of the job in JSON or TOML; options override them."),
    click.option("--cron", "cron_expr", metavar="EXPR",
                 help="A cron expression, '@daily 08:00,17:30' or '@after 90s'."),
    click.option("--timezone", metavar="TZ", help="Such as Europe/Berlin; by default, UTC."),
    click.option("--url", "target_url", metavar="URL",
                 help="Call this URL; it may contain {{run_id}} …"),
    click.option("--method", "http_method", type=_choice(METHODS)),
    click.option("--header", type=_header, multiple=True, metavar="NAME:VALUE"),
    click.option("--body", "body_template", type=_body, metavar="TEXT",
                 help="The body of the call, or @FILE."),
    click.option("--exec-type", type=_choice(ExecType),
                 help="ASYNC: the target calls back when it has finished."),
    click.option("--callback-timeout", "callback_timeout_sec", metavar="SECONDS",
                 type=click.IntRange(1, int(MAX_CALLBACK_TIMEOUT)),
                 help="How long an ASYNC run waits for its callback."),
    click.option("--callback-method", type=_choice(("POST", "PUT"))),
    click.option("--type", "type", type=option_types.TYPE,
                 help="Run a task of this type instead of a call."),
    click.option("--target-type", type=option_types.TYPE,
                 help="Required if several serve the type."),
    click.option("--param", type=option_types.json_value, metavar="JSON"),
    click.option("--timeout", "timeout_seconds", type=click.IntRange(1), metavar="SECONDS",
                 help="Maximum duration of a run."),
    click.option("--retry", "retry_policy_json", type=option_types.json_value, metavar="JSON",
                 help='The retry policy, such as {"max_attempts": 3, "delay": 1}.'),
    click.option("--overlap", "--overlap-action", "overlap_action", type=_choice(OverlapAction),
                 help="What to do if an earlier run is unfinished."),
    click.option("--failure", "--failure-action", "failure_action", type=_choice(FailureAction),
                 help="What to do if the last run failed."),
    click.option("--max-concurrency", type=click.IntRange(0, MAX_CONCURRENCY),
                 help="Maximum number of unfinished runs; 0: no limit."),
    click.option("--concurrency", "--concurrency-policy", "concurrency_policy",
                 type=_choice(ConcurrencyPolicy), help="What to do at that limit."),
    click.option("--catch-up", "--catch-up-mode", "catch_up_mode", type=_choice(CatchUpMode),
                 help="How to handle missed firings."),
    click.option("--misfire-grace", "misfire_grace_seconds", metavar="SECONDS",
                 type=click.IntRange(1, LONGEST_GRACE),
                 help="Maximum lateness before a firing counts as missed."),
    click.option("--starts-at", type=option_types.point_in_time, metavar="TIME",
                 help="No firing before this time."),
    click.option("--ends-at", type=option_types.point_in_time, metavar="TIME",
                 help="No firing after this time."),
    click.option("--jitter", "jitter_seconds", type=click.IntRange(0, MAX_JITTER),
                 metavar="SECONDS", help="Delay each start by a random time up to this."),
    click.option("--priority", type=option_types.PRIORITY,
                 help="9 is the most urgent; by default, 5."),
    click.option("--env", type=option_types.text(64), help="Label: environment."),
    click.option("--description", type=option_types.text(DESCRIPTION_LIMIT)),
    click.option("--disabled", is_flag=True, help="Do not fire until it is enabled."),
)  # fmt: skip


def definition(command: F) -> F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def fields(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a job from the values of the options."""
    found: dict[str, Any] = dict(options.pop("file") or {})
    headers, disabled = options.pop("header"), options.pop("disabled")
    found |= {name: value for name, value in options.items() if value is not None}
    if headers:
        found["headers_json"] = dict(headers)
    if disabled:
        found["status"] = "DISABLED"
    return found
