"""Where a task is: the stack of its own code, without the runner's frames around it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from drumline.domain.release import clip_info

OURS = str(Path(__file__).parent)


def frame_stack(frame: FrameType | None) -> str:
    """The stack that ends in a frame."""
    return _text(traceback.extract_stack(frame))


def coroutine_stack(coroutine: Any) -> str:
    """What a coroutine waits for, and that one, and so on: a suspended one has no other stack."""
    return _text(traceback.StackSummary.extract(_awaited(coroutine)))


def _awaited(coroutine: Any) -> Iterator[tuple[FrameType, int]]:
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            return
        yield frame, frame.f_lineno
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)


def _text(stack: traceback.StackSummary) -> str:
    inner = max((i for i, f in enumerate(stack) if f.filename.startswith(OURS)), default=-1) + 1
    lines = traceback.StackSummary.from_list(stack[inner:]).format()
    return clip_info("".join(lines).rstrip()) or ""
