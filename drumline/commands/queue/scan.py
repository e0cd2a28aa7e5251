"""`queue.scan`: have the scanner look for due tasks now.

For programs that write tasks in transactions of their own; without it the scanner finds these
within a second.
"""

from __future__ import annotations

from typing import ClassVar

from drumline.command_layer.answers import Answer
from drumline.command_layer.base import Context, QueryCommand


class ScannerNotified(Answer, frozen=True, kw_only=True):
    """The scanner was notified."""


class QueueScan(QueryCommand, frozen=True, kw_only=True):
    name: ClassVar[str] = "queue.scan"

    def answer(self, context: Context) -> ScannerNotified:
        context.notify_scanner()
        return ScannerNotified()
