"""The commands: one file each, with its message, its server half and its CLI half.

A new command is a new file in this folder: its classes and its CLI half are found by themselves.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from drumline.commands.base import Change, Command, Context, Query, carry_out, read
from drumline.errors import WrongUse

__all__ = ["Change", "Command", "Context", "Query", "by_name", "carry_out", "modules", "read"]


@cache
def modules(noun: str = "") -> tuple[ModuleType, ...]:
    """Every file of this folder, imported; or those of one noun, by how their names begin."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(
        importlib.import_module(f"{__name__}.{name}")
        for name in names
        if not noun or f"{name}_".startswith(f"{noun}_")
    )


@cache
def table() -> dict[str, type[Command]]:
    """All commands by their names on the wire."""
    found: dict[str, type[Command]] = {}
    for module in modules():
        for value in vars(module).values():
            if not isinstance(value, type) or not issubclass(value, Command):
                continue
            if value.__module__ != module.__name__ or not hasattr(value, "name"):
                continue
            if value.name in found:
                raise RuntimeError(f"two commands are called {value.name}")
            found[value.name] = value
    return found


def by_name(name: str) -> type[Command]:
    """The command of this name."""
    try:
        return table()[name]
    except KeyError:
        raise WrongUse(reason=f"there is no command {name!r}") from None
