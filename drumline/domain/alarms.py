"""Alarms: the events, the webhooks that receive them, and the signature of a message.

Messages follow the Standard Webhooks specification, for which receivers find libraries.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from drumline.errors import BadConfig

FIRST_DELAY = 2.0
MAX_DELAY = 3600.0
SECRET_PREFIX = "whsec_"  # noqa: S105  # the prefix that the specification requires


class AlarmEvent(StrEnum):
    """The events that cause an alarm."""

    BATCH_END = "batch_end"
    JOB_FAILED = "job_failed"
    QUARANTINE = "quarantine"
    SWEEP_STOPPED = "sweep_stopped"


class Webhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A receiver of alarms."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    # No credentials in the URL: it appears in errors and logs.
    url: Annotated[str, Meta(pattern=r"^https?://[^@\s]+$")]
    secret_env: Annotated[str, Meta(min_length=1)]
    """The environment variable that holds the secret for signing messages."""
    events: Annotated[tuple[AlarmEvent, ...], Meta(min_length=1)] = tuple(AlarmEvent)


WebhooksByEvent = Mapping[str, tuple[str, ...]]
"""For each event, the names of the webhooks that receive it."""


def webhooks_by_event(webhooks: Sequence[Webhook]) -> WebhooksByEvent:
    found = {
        event: tuple(hook.name for hook in webhooks if event in hook.events) for event in AlarmEvent
    }
    return {event: names for event, names in found.items() if names}


def check_unique_names(webhooks: Sequence[Webhook]) -> None:
    """Refuse two webhooks of the same name: deliveries are recorded by name."""
    names = [hook.name for hook in webhooks]
    for name in names:
        if names.count(name) > 1:
            raise BadConfig(reason=f"two webhooks are called {name!r}")


def webhook_secret(hook: Webhook, environment: Mapping[str, str]) -> bytes:
    """The secret of a webhook: plain text, or base64 after `whsec_`."""
    text = environment.get(hook.secret_env, "")
    if not text:
        raise BadConfig(
            reason=f"webhook {hook.name!r}: {hook.secret_env} is not set; it must hold the secret"
        )
    if not text.startswith(SECRET_PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise BadConfig(
            reason=f"webhook {hook.name!r}: the text after {SECRET_PREFIX} in {hook.secret_env} is "
            "not base64"
        ) from None


def sign_message(secret: bytes, event_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` header: `v1,` and the HMAC over id, time and body."""
    signed = b"%s.%d.%s" % (event_id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()


def retry_delay(tries: int, chance: float) -> float:
    """Seconds until the next try: exponential backoff with jitter; chance is in 0..1."""
    return min(FIRST_DELAY * 2.0 ** (tries - 1), MAX_DELAY) * (0.5 + chance / 2)
