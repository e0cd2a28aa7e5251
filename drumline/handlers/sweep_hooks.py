"""Runs the hooks of a sweep: `create` may refuse the sweep, `prepare` may put off its start."""

from __future__ import annotations

import inspect
import math
from typing import Any

from drumline.domain.sweeps.partition import HookParam, HookResult
from drumline.errors import WrongUse
from drumline.handlers.sweep import Later, Preparation, Refused, Sweep, encode_extra

MAX_DELAY = 86_400.0


def run_hook(handler: Sweep, param: HookParam, *, raises: bool = False) -> HookResult:
    """Run one hook. A refusal is part of the result, or raised if `raises` is set."""
    is_create = param.hook == "create"
    total, identity = None, None
    if not is_create and param.source is not None:
        from drumline.handlers.item_sources import open_source  # imports aiohttp

        opened = open_source(param.sweep_id, param.source, lambda: False)
        total, identity = opened.items.total, opened.identity
        opened.items.close()
    sweep = Preparation(param, total)
    try:
        answer = resolve(handler.create(sweep) if is_create else handler.prepare(sweep))
    except Refused as refused:
        if raises:
            raise
        return HookResult(refused=str(refused) or "its handler refused it")
    if is_create:
        return HookResult()
    delay, waits = _read_delay(answer)
    extra = encode_extra(sweep.extra) if sweep.extra_changed else None
    return HookResult(None, delay, waits, total, identity, extra)


def resolve(value: Any) -> Any:
    """The value that a method returned; one that is `async def` is run to its end."""
    if not inspect.isawaitable(value):
        return value
    import asyncio  # 30 ms that a process without async hooks does not need

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _read_delay(answer: object) -> tuple[float | None, bool]:
    """Seconds until `prepare` is called again, and whether the sweep waits for its operator."""
    if answer is None:
        return None, False
    if not isinstance(answer, Later):
        raise WrongUse(reason=f"prepare must return None or Later, not {answer!r}")
    seconds = answer.seconds
    if seconds is None:
        return None, True
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise WrongUse(reason=f"Later takes a number of seconds, not {seconds!r}")
    if not 0 <= seconds <= MAX_DELAY:
        raise WrongUse(reason=f"Later takes 0 to {MAX_DELAY:g} seconds, not {seconds!r}")
    return float(seconds), False
