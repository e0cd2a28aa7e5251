"""Single keys from a terminal, without Enter."""

from __future__ import annotations

import os
import select
import sys
from types import TracebackType
from typing import Any, Self


class Keyboard:
    """Reads keys inside its `with` block; there are none if stdin is not a terminal."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        if self._fd is not None:
            import termios
            import tty

            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)  # Ctrl-C stays a signal
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._fd is not None:
            import termios

            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """The next key, or an empty text after this many seconds."""
        watched = [] if self._fd is None else [self._fd]
        ready, _, _ = select.select(watched, [], [], seconds)
        return os.read(self._fd, 1).decode(errors="replace") if ready and self._fd else ""
