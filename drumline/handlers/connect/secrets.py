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

MASK = "***"
SHORTEST = 4
"""A shorter value would be found all over a text that has nothing to do with it."""

# Connect knows a secret by its type in the connector's own definition, which only the plug-in
# has; by name, this covers what Kafka, Connect, Debezium and the common sinks call theirs. What
# tells where a secret is (a file, an address) or of which kind it is, is none.
_NAMES = (
    r"^(?!.*\.(url|uri|location|path|file|type|class|provider|algorithm|ms|enabled?)$).*"
    r"([pP][aA][sS][sS]([wW]|[pP][hH][rR]|$|\.)|[sS][eE][cC][rR][eE][tT]|[tT][oO][kK][eE][nN]"
    r"|[cC][rR][eE][dD][eE][nN][tT][iI][aA][lL]|(private|access|api|account|keystore)[._]?[kK]ey"
    r"|jaas|user\.info)"
)
_KEY = re.compile(_NAMES)
_REFERENCE = r"^\$\{[^{}]+\}$"
_EXTERNAL = re.compile(_REFERENCE)
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:(?=[^/\s@]+@)|[?&;]password=)[^/\s@&;]+", re.IGNORECASE)

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
    return bool(_KEY.search(key) or _IN_ADDRESS.search(value))


def refuse_plain(change: Mapping[str, str | None], what: str) -> None:
    """Let no plain secret into what is stored with a task."""
    for key, value in change.items():
        if is_plain_secret(key, value):
            raise WrongUse(
                reason=f"{key} {what} is a plain secret, and Drumline keeps none: put it where "
                "Connect can look it up and set a reference such as ${file:/path:key}"
            )


def masked(text: str, *configs: Config | None) -> str:
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
    return _IN_ADDRESS.sub(rf"\1{MASK}", text)


def shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as people may see it."""
    return {k: MASK if is_plain_secret(k, v) else v for k, v in config.items()}
