"""The audit trail: one entry for each change that was made or refused.

Arguments are masked and truncated: every role may read the trail, and a batch of thousands of
targets is one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from drumline.command_layer import store
from drumline.command_layer.base import REQUEST_ID_LIMIT, ChangeCommand, Command, Context
from drumline.errors import DrumlineError, StoreUnavailable
from drumline.masking import (
    MASK,
    is_secret_name,
    mask_named_values,
    mask_url,
    may_contain_secret_names,
)

if TYPE_CHECKING:
    from drumline.store.admin.audit import AuditEntry
    from drumline.store.tx import Tx

DONE = "done"
REASON_LIMIT = 500
SUBJECT_LIMIT = 255
ARGUMENTS_LIMIT = 4096
"""Bytes of JSON."""
TEXT_LIMIT = 300
READ_LIMIT = 2400
MAX_ITEMS = 5
MAX_DEPTH = 5
ELLIPSIS = "…"


def name_subject(command: str, *sources: Mapping[str, Any]) -> str:
    """What a command acts on, such as `job 12`, from its answer or else from its arguments."""
    noun = command.partition(".")[0]
    for values in sources:
        for name in (f"{noun}_id", "id", noun, "name", f"{noun}_name", "type"):
            value = values.get(name)
            if isinstance(value, str | int) and value != "":
                return f"{noun} {value}"[:SUBJECT_LIMIT]
    return noun


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON of at most ARGUMENTS_LIMIT bytes, without secrets."""
    masked = {name: _mask(name, value, MAX_DEPTH) for name, value in arguments.items()}
    text = msgspec.json.encode(masked)
    if len(text) > ARGUMENTS_LIMIT:
        # As many of the small arguments as fit.
        text, kept = b"", {ELLIPSIS: ELLIPSIS}
        for name, value in sorted(masked.items(), key=lambda item: len(msgspec.json.encode(item))):
            kept[name] = value
            longer = msgspec.json.encode(kept)
            if len(longer) > ARGUMENTS_LIMIT:
                break
            text = longer
    return text.decode()


def _mask(name: str, value: Any, depth: int) -> Any:
    """A value without secrets, truncated."""
    if is_secret_name(name) and value not in (None, "", False):
        return MASK
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return _mask_text(name, value, depth)
        case Mapping() if depth:
            first = _first(value.items())
            masked = {str(key): _mask(str(key), item, depth - 1) for key, item in first}
            omitted = len(value) - MAX_ITEMS
            return masked | ({ELLIPSIS: omitted} if omitted > 0 else {})
        case list() | tuple() if depth:
            items = [_mask(name, item, depth - 1) for item in _first(value)]
            omitted = len(value) - MAX_ITEMS
            return items + ([f"{ELLIPSIS} {omitted} more"] if omitted > 0 else [])
        case _:
            return ELLIPSIS


def _first(values: Iterable[Any]) -> list[Any]:
    return [value for value, _ in zip(values, range(MAX_ITEMS), strict=False)]


def _mask_text(name: str, value: str, depth: int) -> Any:
    """A text without the values of secret names, truncated. It may be JSON, a URL or a form.

    It is truncated before it is searched, so that a megabyte costs what a few kilobytes cost, and
    READ_LIMIT is far above TEXT_LIMIT so that no half of a secret remains at the end.
    """
    if value[:1] in ("{", "[") and depth and len(value) <= READ_LIMIT:
        with suppress(msgspec.DecodeError, UnicodeEncodeError):
            return _mask(name, msgspec.json.decode(value), depth - 1)
    clean = mask_named_values(mask_url(value[:READ_LIMIT]))
    if '\\"' in clean and may_contain_secret_names(clean):
        return ELLIPSIS  # nested JSON that cannot be parsed: its names are not found
    return clean if len(clean) <= TEXT_LIMIT else clean[:TEXT_LIMIT] + ELLIPSIS


# --- writing -------------------------------------------------------------------------------------


def record_change(
    tx: Tx, command: ChangeCommand, answer: Mapping[str, Any], request_id: str, context: Context
) -> None:
    """Write the entry of a change, in the transaction of the change."""
    arguments = {
        field.encode_name: value
        for field in _fields(type(command))
        if (value := getattr(command, field.name)) is not field.default
        and value is not msgspec.UNSET
    }
    secret = command.secret_answer_fields
    public = {name: value for name, value in answer.items() if name not in secret}
    subject = name_subject(command.name, public, arguments)
    store.audit.write(tx, _entry(command.name, subject, arguments, DONE, request_id, context))


_fields = cache(msgspec.structs.fields)
"""Without the cache this took a tenth of the time of a small change."""


def record_refusal(
    kind: type[Command],
    arguments: Mapping[str, Any],
    error: DrumlineError,
    request_id: str,
    context: Context,
) -> None:
    """Write the entry of a refused change. If that fails, the caller gets `error` anyway."""
    if not issubclass(kind, ChangeCommand) or not kind.audited:
        return
    subject = name_subject(kind.name, arguments)
    reason = str(error)[:REASON_LIMIT]
    entry = _entry(kind.name, subject, arguments, error.code, request_id, context, reason)
    try:
        context.db.write(lambda tx: store.audit.write(tx, entry), tries=2)
    except StoreUnavailable as unavailable:
        import structlog  # imports rich, which `--help` does not need

        log = structlog.get_logger()
        log.warning("Refusal not written to the audit trail", action="audit_missed",
                    command=kind.name, error=str(unavailable))  # fmt: skip


def _entry(
    command: str,
    subject: str,
    arguments: Mapping[str, Any],
    result: str,
    request_id: str,
    context: Context,
    reason: str | None = None,
) -> AuditEntry:
    return store.audit.AuditEntry(
        region=context.settings.region,
        actor=context.actor,
        front_end=context.front_end,
        command=command,
        subject=subject,
        arguments=format_arguments(arguments),
        result=result,
        request_id=request_id[:REQUEST_ID_LIMIT],
        reason=reason,
    )
