"""The options of commands that list the newest rows first, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from drumline.cli import groups
from drumline.command_layer.fields import PAGE_LIMIT

F = TypeVar("F", bound=Callable[..., Any])

limit = click.option(
    "--limit", type=click.IntRange(1, PAGE_LIMIT), default=50, show_default=True, metavar="N",
    help="The size of a page.",
)  # fmt: skip


def options(noun: str) -> Callable[[F], F]:
    """Add --before and --limit to a command."""
    before = click.option(
        "--before", type=groups.ID, metavar="ID", help=f"Only {noun} older than this one."
    )

    def add(command: F) -> F:
        return before(limit(command))

    return add
