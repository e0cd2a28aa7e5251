"""The param of the tasks by which a dry run inspects its targets on a worker."""

from __future__ import annotations

from typing import Any

import msgspec

from drumline.domain.task import BatchInfo

TARGET_TYPE = "drumline"
SYNC_TYPE = "drumline.preview"
ASYNC_TYPE = "drumline.preview_async"
"""The task types for sync and for async handlers."""


class PreviewParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The task that the dry run previews."""

    type: str
    target_type: str
    batch: BatchInfo
    target_id: str | None = None
    target_name: str | None = None
    target_env: str | None = None
    param: Any = None
