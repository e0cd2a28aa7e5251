"""What commands answer with: structs, from which the REST description is derived.

A docstring under a field is its description there, as it is for the fields of a command.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from drumline.command_layer.base import Command

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time as `fields.iso` writes it."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all answers."""


@cache
def answer_type(kind: type[Command]) -> type[msgspec.Struct]:
    """The struct that a command answers with, as its method is annotated."""
    method = getattr(kind, "answer", None) or getattr(kind, "change", None)
    # Tx is imported by type checkers only: the store costs the CLI 190 ms.
    found: type[msgspec.Struct] = get_type_hints(method, localns={"Tx": Any})["return"]
    return found
