"""What the queue commands answer with."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.command_layer.answers import Answer

EVERYTHING = "*"


class QueuePauses(Answer, frozen=True, kw_only=True):
    """The types that are paused."""

    paused: list[str]
    """`*` if everything is paused."""


def format_pauses(types: Iterable[str]) -> str:
    """The types that are paused, for the terminal."""
    return ", ".join("everything" if type == EVERYTHING else type for type in types) or "nothing"
