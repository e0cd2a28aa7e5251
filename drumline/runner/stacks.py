"""The stack of a task's own code, without the frames of the runner around it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from drumline.domain.release import clip_info
from drumline.handlers import sweep_hooks

RUNNER_CODE = (str(Path(__file__).parent), sweep_hooks.__file__)


def frame_stack(frame: FrameType | None) -> str:
    """The stack that ends in a frame."""
    return _format(traceback.extract_stack(frame))


def coroutine_stack(coroutine: Any) -> str:
    """The chain of coroutines that each wait for the next: a suspended coroutine has no other
    stack."""
    return _format(traceback.StackSummary.extract(_awaited_frames(coroutine)))


def _awaited_frames(coroutine: Any) -> Iterator[tuple[FrameType, int]]:
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            return
        yield frame, frame.f_lineno
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)


def _format(stack: traceback.StackSummary) -> str:
    in_runner = [i for i, f in enumerate(stack) if f.filename.startswith(RUNNER_CODE)]
    own = stack[max(in_runner, default=-1) + 1 :]
    lines = traceback.StackSummary.from_list(own).format()
    return clip_info("".join(lines).rstrip()) or ""
