"""Drumline: a durable job scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.enqueue import enqueue, enqueue_many
from drumline.handlers.base import Change, Handler, NoRetry, WaitForCallback
from drumline.handlers.registry import handler, register
from drumline.handlers.sweep import Item, Later, Preparation, Refused, Sweep
from drumline.handlers.sweep_registry import register_sweep, sweep
from drumline.task import Task

if TYPE_CHECKING:
    from drumline.client.client import Client

__all__ = [
    "Change",
    "Client",
    "Handler",
    "Item",
    "Later",
    "NoRetry",
    "Preparation",
    "Refused",
    "Sweep",
    "Task",
    "WaitForCallback",
    "enqueue",
    "enqueue_many",
    "handler",
    "register",
    "register_sweep",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import the client when it is first used: runners do not need it."""
    if name == "Client":
        from drumline.client.client import Client

        return Client
    raise AttributeError(f"module 'drumline' has no attribute {name!r}")
