"""Secrets in what is shown: a setting or a URL, as it may be printed and logged."""

from __future__ import annotations

import re

MASK = "***"
_PASSWORD = re.compile(r"(?P<who>://[^/@:]*):.*@")
"""Up to the last @: a password may have one itself, and to mask too much does no harm."""
_NAMES = re.compile(r"password|secret|token|private|credential|api_key", re.IGNORECASE)


def masked(name: str, value: object) -> object:
    """A setting's value without what must not be seen, however deep it is."""
    if isinstance(value, dict):
        return {key: masked(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(name, inner) for inner in value]
    if value and _NAMES.search(name):
        return MASK
    return masked_url(value) if isinstance(value, str) else value


def masked_url(text: str) -> str:
    """A URL without its password."""
    return _PASSWORD.sub(rf"\g<who>:{MASK}@", text)
