"""The commands, grouped by noun: one file each, with its message, its server half and its CLI half.

A new command is a new file in its noun's package; this module finds its classes and its CLI half.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from drumline.command_layer.base import (
    ChangeCommand,
    Command,
    Context,
    QueryCommand,
    read,
    run_command,
)
from drumline.errors import WrongUse

__all__ = [
    "ChangeCommand",
    "Command",
    "Context",
    "QueryCommand",
    "by_name",
    "modules",
    "read",
    "run_command",
]


MIXED = ("admin", "node")
"""The packages whose files are named after their command and not after the package's noun."""


@cache
def modules(noun: str = "") -> tuple[ModuleType, ...]:
    """The modules of all commands, imported; or only those of one noun or top-level command."""
    names = [
        f"{package.name}.{module.name}"
        for package in pkgutil.iter_modules(__path__)
        for module in pkgutil.iter_modules([f"{folder}/{package.name}" for folder in __path__])
        if not noun
        or package.name == noun
        or (package.name in MIXED and f"{module.name}_".startswith(f"{noun}_"))
    ]
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in sorted(names))


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
