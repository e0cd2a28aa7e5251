"""Lines for a sweep's data log that no stored checkpoint contains yet."""

from __future__ import annotations

from drumline.domain.sweeps.partition import MAX_LOG_LINES, MAX_MESSAGE_LENGTH, LogLine


class DataLogBuffer:
    """Bounded: lines past the limit are only counted. Not locked; its user holds a lock."""

    def __init__(self) -> None:
        self._lines: list[LogLine] = []
        self._dropped = 0

    def __bool__(self) -> bool:
        return bool(self._lines or self._dropped)

    def add(self, item: int, message: str) -> None:
        if len(self._lines) >= MAX_LOG_LINES:
            self._dropped += 1
        else:
            valid = message.encode(errors="backslashreplace").decode()
            self._lines.append(LogLine(item, valid[:MAX_MESSAGE_LENGTH]))

    def drain(self, start: int) -> tuple[LogLine, ...]:
        """Take all lines out; `start` is the index for the line that counts the dropped ones."""
        if self._dropped:
            self._lines.append(LogLine(start, f"{self._dropped:,} lines were left out"))
        lines, self._lines, self._dropped = tuple(self._lines), [], 0
        return lines

    def restore(self, lines: tuple[LogLine, ...]) -> None:
        """Put lines back whose checkpoint could not be stored."""
        self._lines[:0] = lines
