"""A sweep's hooks: may it be, and is what its items need there?"""

from __future__ import annotations

import asyncio
import inspect
import math
from typing import Any

from drumline.domain.sweeps.partition import HookParam, HookResult
from drumline.errors import WrongUse
from drumline.handlers.sweep import LONGEST_LATER, Later, Preparation, Refused, Sweep
from drumline.runner.sweep.item_window import extra_text


def run_hook(handler: Sweep, param: HookParam, *, raises: bool = False) -> HookResult:
    """Run one hook, and say what it came to; a refusal may be raised instead of said."""
    creating = param.hook == "create"
    total, identity = None, None
    if not creating and param.source is not None:
        from drumline.runner.sweep.item_sources import open_source

        opened = open_source(param.sweep_id, param.source, lambda: False)
        total, identity = opened.items.total, opened.identity
        opened.items.close()
    sweep = Preparation(param, total)
    try:
        said = awaited(handler.create(sweep) if creating else handler.prepare(sweep))
    except Refused as refused:
        if raises:
            raise
        return HookResult(refused=str(refused) or "its handler refused it")
    if creating:
        return HookResult()
    later, waits = _later(said)
    extra = extra_text(sweep.extra) if sweep.extra_changed else None
    return HookResult(None, later, waits, total, identity, extra)


def awaited(value: Any) -> Any:
    """What a handler returned, whether or not it is `async def`."""
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _later(said: object) -> tuple[float | None, bool]:
    if said is None:
        return None, False
    if not isinstance(said, Later):
        raise WrongUse(reason=f"prepare must return None or Later, not {said!r}")
    seconds = said.seconds
    if seconds is None:
        return None, True
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise WrongUse(reason=f"Later takes a number of seconds, not {seconds!r}")
    if not 0 <= seconds <= LONGEST_LATER:
        raise WrongUse(reason=f"Later takes 0 to {LONGEST_LATER:g} seconds, not {seconds!r}")
    return float(seconds), False
