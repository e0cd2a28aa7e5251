"""Talk to a person at a terminal: one line on stderr that changes as things go on.

Where nobody watches, each new sentence is a line of its own, or nothing. Data goes to stdout.
No library draws this: a spinner that turns twelve times a second costs more than an idle node.
"""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import Self

CLEAR = "\r\x1b[K"


class StatusLine:
    """What is being done right now."""

    def __init__(self, chatty: bool = True) -> None:
        self._chatty = chatty
        self._shown = ""
        self._is_live = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_live:
            self._write(CLEAR)

    def say(self, text: str) -> None:
        """Replace the line; where there is no terminal, print it if it is new and not just chat."""
        if text == self._shown:
            return
        self._shown = text
        if self._is_live:
            # A line that wraps cannot be taken back.
            self._write(CLEAR + text[: shutil.get_terminal_size().columns - 1])
        elif self._chatty:
            self._write(text + "\n")

    def note(self, text: str) -> None:
        """A sentence that stays."""
        head, self._shown = (CLEAR if self._is_live else ""), ""
        self._write(f"{head}{text}\n")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
