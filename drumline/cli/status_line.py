"""One line on stderr that shows what a command is doing.

Where stderr is not a terminal, each new text is a line of its own, or is left out. It is written
without a library: a spinner that turns twelve times a second costs more CPU than an idle node.
"""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import Self

CLEAR = "\r\x1b[K"


class StatusLine:
    """The current step of a command."""

    def __init__(self, log_steps: bool = True) -> None:
        self._log_steps = log_steps
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

    def show(self, text: str) -> None:
        """Replace the line; without a terminal, print it if it has changed and steps are logged."""
        if text == self._shown:
            return
        self._shown = text
        if self._is_live:
            # A line that wraps could not be cleared.
            self._write(CLEAR + text[: shutil.get_terminal_size().columns - 1])
        elif self._log_steps:
            self._write(text + "\n")

    def print(self, text: str) -> None:
        """Print a line that stays."""
        head, self._shown = (CLEAR if self._is_live else ""), ""
        self._write(f"{head}{text}\n")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
