"""Which settings of a connector are secret, and how they are kept out of everything we write.

Connect resolves `${provider:path:key}` itself: such a reference is no secret and is kept as it is.
A plain secret is never stored; see docs/decisions/cdc-secrets.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from drumline.errors import WrongUse
from drumline.masking import MASK, has_url_password, mask_url_passwords, names_pattern

SHORTEST = 4
"""Shorter secret values are not searched for in messages: they would match unrelated text."""

# Connect knows the type of a setting from the connector's own definition, which only the plug-in
# has; by name, this covers the secrets of Kafka, Connect, Debezium and the common sinks. A setting
# that locates a secret (a file, a URL) or names its kind holds none. A JSON schema has no flag for
# ignoring case, so the pattern spells out both cases.
_NAMES = (
    r"^(?!.*\.(url|uri|location|path|file|type|class|provider|algorithm|ms|enabled?)$).*"
    rf"({names_pattern('[{0}{1}]')}|[pP][aA][sS][sS]($|\.))"
)
_KEY = re.compile(_NAMES)
_REFERENCE = r"^\$\{[^{}]+\}$"
_EXTERNAL = re.compile(_REFERENCE)

Config = Mapping[str, str]

_ONLY_REFERENCES = {
    "type": "string",
    "pattern": _REFERENCE,
    "description": "a secret is given as a reference that Connect resolves: ${file:/path:key}",
}

SettingMap = Annotated[
    dict[str, str],
    Meta(
        description="Settings of the connector. Secrets only as references: ${file:/path:key}.",
        extra_json_schema={"patternProperties": {_NAMES: _ONLY_REFERENCES}},
    ),
]
"""A map of settings that a submission may carry: its schema refuses plain secrets."""

Reference = Annotated[
    str,
    Meta(
        pattern=_REFERENCE,
        description="A secret, by reference: ${file:/path:key} or another provider of Connect's.",
    ),
]


def is_plain_secret(key: str, value: str | None) -> bool:
    """Would writing this value down give a secret away?"""
    if not value or _EXTERNAL.fullmatch(value):
        return False
    return bool(_KEY.search(key) or has_url_password(value))


def refuse_plain(change: Mapping[str, str | None], what: str) -> None:
    """Let no plain secret into what is stored with a task."""
    for key, value in change.items():
        if is_plain_secret(key, value):
            raise WrongUse(
                reason=f"{key} {what} is a plain secret, and Drumline keeps none: put it where "
                "Connect can look it up and set a reference such as ${file:/path:key}"
            )


def mask_config_secrets(text: str, *configs: Config | None) -> str:
    """A text from Connect without the secrets of these configurations."""
    values = {
        value
        for config in configs
        for key, value in (config or {}).items()
        if is_plain_secret(key, value) and len(value) >= SHORTEST
    }
    # The longest first: one secret may be a part of another.
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return mask_url_passwords(text)


def masked_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as people may see it."""
    return {k: MASK if is_plain_secret(k, v) else v for k, v in config.items()}
