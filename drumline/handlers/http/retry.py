"""The outcome of a call, and the policy for retries. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from drumline.domain.policy import Retry
from drumline.domain.states import Cause


class CallOutcome(StrEnum):
    """The outcome of a call. A retry policy may list all except SUCCESS and REFUSED."""

    SUCCESS = "success"  # 2xx
    INFORMATIONAL = "1xx"  # an upgrade that was not requested
    REDIRECT = "3xx"  # redirects are not followed
    CLIENT_ERROR = "4xx"
    SERVER_ERROR = "5xx"
    TIMEOUT = "timeout"
    CONNECTION = "connection"  # name not resolved, connection failed, or invalid HTTP
    TLS = "tls"
    REFUSED = "refused"  # by the address rules, which would refuse a retry as well


_NEVER = (CallOutcome.SUCCESS, CallOutcome.REFUSED)
CALLBACK_TIMEOUT = Cause.CALLBACK_TIMEOUT.value
"""An additional outcome of ASYNC calls, after their response."""
RETRIABLE = frozenset({outcome.value for outcome in CallOutcome} - {*_NEVER} | {CALLBACK_TIMEOUT})
DEFAULT_ON = ("timeout", "connection", "5xx", "408", "425", "429", CALLBACK_TIMEOUT)
MAX_DELAY = 24 * 3600.0


def outcome_of(status_code: int) -> CallOutcome:
    """The outcome for a status code: 2xx is success, others go by their first digit."""
    if 200 <= status_code < 300:
        return CallOutcome.SUCCESS
    # A code that HTTP does not define (aiohttp accepts 0 to 999) counts as a server error.
    return _BY_DIGIT.get(status_code // 100, CallOutcome.SERVER_ERROR)


_BY_DIGIT = {1: CallOutcome.INFORMATIONAL, 3: CallOutcome.REDIRECT, 4: CallOutcome.CLIENT_ERROR}


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The number of attempts, the delays between them, and the outcomes that are retried."""

    max_attempts: Annotated[int, Meta(ge=1, le=100)] = 1
    delay: Annotated[float, Meta(ge=0, le=MAX_DELAY)] = 1.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    max_delay: Annotated[float, Meta(gt=0, le=MAX_DELAY)] = 600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.25
    on: tuple[str | int, ...] = DEFAULT_ON
    """Outcomes or single status codes after which a call is retried."""

    def invalid_entry(self) -> str | None:
        """What is wrong with `on`; the types validate the other fields."""
        for entry in self.on:
            text = str(entry)
            if text not in RETRIABLE and not (
                len(text) == 3 and text.isascii() and text.isdigit() and text[0] in "1345"
            ):
                names = ", ".join(sorted(RETRIABLE))
                return f"{entry!r} is neither one of {names} nor the status code of a failure"
        return None

    def retries(self, outcome: CallOutcome, status_code: int | None = None) -> bool:
        """Whether this outcome is retried."""
        if outcome in _NEVER:
            return False
        named = {str(entry) for entry in self.on}
        return outcome.value in named or str(status_code) in named

    def to_retry(self) -> Retry:
        """The retry rule of the run. The rule knows causes only; whether an error is retried is in
        the error itself (`HttpCallFailed.final`)."""
        named = {str(entry) for entry in self.on}
        causes = [Cause.ERROR.value]
        causes += [c.value for c in (Cause.TIMEOUT, Cause.CALLBACK_TIMEOUT) if c.value in named]
        return Retry(
            self.max_attempts - 1,
            self.delay,
            self.factor,
            self.max_delay,
            self.jitter,
            tuple(causes),
        )
