"""The SDK's client, and the control socket that it uses."""

from drumline.client.client import (
    Batch,
    Client,
    NotFinished,
    SweepHandle,
    Target,
    TaskFailed,
    TaskHandle,
)

__all__ = ["Batch", "Client", "NotFinished", "SweepHandle", "Target", "TaskFailed", "TaskHandle"]
