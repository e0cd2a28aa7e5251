"""A target of a batch as it is submitted, and how many go into one message."""

from __future__ import annotations

from typing import Any

import msgspec

from drumline.command_layer.fields import Text64, Text255

CHUNK_SIZE = 5000
"""Targets in one message and one transaction."""
CHUNK_BYTES = 8 * 1024 * 1024
"""A chunk ends with the target that reaches this size; the gateway reads messages of 32 MiB."""


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One target: what one task of a batch acts on."""

    target_id: Text255 | None = None
    target_name: Text255 | None = None
    target_env: Text64 | None = None
    param: Any = None
    before_update: Any = None
    after_update: Any = None
