"""The message from a dry run to the worker that looks at a target for it."""

from __future__ import annotations

from typing import Any

import msgspec

from drumline.domain.task import BatchInfo

TARGET_TYPE = "drumline"
SYNC_TYPE = "drumline.preview"
ASYNC_TYPE = "drumline.preview_async"
"""The types of the tasks that look, for handlers that are plain and for those that are async."""


class PreviewParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A task as it would be."""

    type: str
    target_type: str
    batch: BatchInfo
    target_id: str | None = None
    target_name: str | None = None
    target_env: str | None = None
    param: Any = None
