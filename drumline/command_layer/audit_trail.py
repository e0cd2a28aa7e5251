"""What the audit trail says of a change: what it acted on, and with which arguments.

Arguments are bounded and without secrets: the trail is for whoever may look, and a batch of
thousands of targets is one line of it.
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
ITEMS = 5
DEPTH = 5
MORE = "…"


def subject(command: str, *found: Mapping[str, Any]) -> str:
    """What a command acts on, as in `job 12`: from its answer, or else from its arguments."""
    noun = command.partition(".")[0]
    for values in found:
        for name in (f"{noun}_id", "id", noun, "name", f"{noun}_name", "type"):
            value = values.get(name)
            if isinstance(value, str | int) and value != "":
                return f"{noun} {value}"[:SUBJECT_LIMIT]
    return noun


def shown(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON that fits."""
    bounded = {name: _bounded(name, value, DEPTH) for name, value in arguments.items()}
    text = msgspec.json.encode(bounded)
    if len(text) > ARGUMENTS_LIMIT:
        # Sorted by size: as many of the small ones as fit.
        text, kept = b"", {MORE: MORE}
        for name, value in sorted(bounded.items(), key=lambda one: len(msgspec.json.encode(one))):
            kept[name] = value
            longer = msgspec.json.encode(kept)
            if len(longer) > ARGUMENTS_LIMIT:
                break
            text = longer
    return text.decode()


def _bounded(name: str, value: Any, depth: int) -> Any:
    if is_secret_name(name) and value not in (None, "", False):
        return MASK
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return _text(name, value, depth)
        case Mapping() if depth:
            some = _some(value.items())
            inner = {str(key): _bounded(str(key), one, depth - 1) for key, one in some}
            return inner | ({MORE: len(value) - ITEMS} if len(value) > ITEMS else {})
        case list() | tuple() if depth:
            items = [_bounded(name, one, depth - 1) for one in _some(value)]
            return items + ([f"{MORE} {len(value) - ITEMS} more"] if len(value) > ITEMS else [])
        case _:
            return MORE


def _some(values: Iterable[Any]) -> list[Any]:
    return [one for one, _ in zip(values, range(ITEMS), strict=False)]


def _text(name: str, value: str, depth: int) -> Any:
    """A text without what stands behind secret names, cut. It may be JSON, a URL or a form.

    Cut first, with room, so that a megabyte costs what a few kilobytes cost; what is masked ends
    where the text ends.
    """
    if value[:1] in ("{", "[") and depth and len(value) <= READ_LIMIT:
        with suppress(msgspec.DecodeError, UnicodeEncodeError):
            return _bounded(name, msgspec.json.decode(value), depth - 1)
    clean = mask_named_values(mask_url(value[:READ_LIMIT]))
    if '\\"' in clean and may_contain_secret_names(clean):
        return MORE  # JSON inside of JSON that cannot be read: the names in it are not found
    return clean if len(clean) <= TEXT_LIMIT else clean[:TEXT_LIMIT] + MORE


# --- written -------------------------------------------------------------------------------------


def note_done(
    tx: Tx, command: ChangeCommand, answer: Mapping[str, Any], request_id: str, context: Context
) -> None:
    """In the transaction of the change itself."""
    said = {
        field.encode_name: value
        for field in _fields(type(command))
        if (value := getattr(command, field.name)) is not field.default
        and value is not msgspec.UNSET
    }
    told = {name: value for name, value in answer.items() if name not in command.told_once}
    about = subject(command.name, told, said)
    store.audit.write(tx, _entry(command.name, about, said, DONE, request_id, context))


_fields = cache(msgspec.structs.fields)
"""They are found out anew with each call, which took a tenth of a small change."""


def note_refused(
    kind: type[Command],
    arguments: Mapping[str, Any],
    error: DrumlineError,
    request_id: str,
    context: Context,
) -> None:
    """What was not done. The refusal stands also if the database cannot take this down."""
    if not issubclass(kind, ChangeCommand) or not kind.audited:
        return
    about = subject(kind.name, arguments)
    reason = str(error)[:REASON_LIMIT]
    entry = _entry(kind.name, about, arguments, error.code, request_id, context, reason)
    try:
        context.db.write(lambda tx: store.audit.write(tx, entry), tries=2)
    except StoreUnavailable as unavailable:
        import structlog  # it brings rich with it, which the CLI's help need not wait for

        log = structlog.get_logger()
        log.warning("A refusal is missing from the audit trail.", action="audit_missed",
                    command=kind.name, error=str(unavailable))  # fmt: skip


def _entry(
    command: str,
    about: str,
    arguments: Mapping[str, Any],
    result: str,
    request_id: str,
    context: Context,
    reason: str | None = None,
) -> AuditEntry:
    return store.audit.AuditEntry(
        region=context.settings.region,
        actor=context.actor,
        door=context.door,
        command=command,
        subject=about,
        arguments=shown(arguments),
        result=result,
        request_id=request_id[:REQUEST_ID_LIMIT],
        reason=reason,
    )
