"""Builds the index of a source of items, which is read once, in chunks of any size.

A build that is interrupted is resumed at the last line that is known to be on disk. The finished
files become visible by a rename, the index last.
"""

from __future__ import annotations

import codecs
import fcntl
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn, Self

from drumline.errors import Conflict, WrongUse
from drumline.sweep_items.reader import (
    BOM,
    CHUNK,
    HEADER,
    MAGIC,
    OFFSET,
    Items,
    file_identity,
    files_of,
    open_items,
)

EVERY = 256  # lines between two offsets: 10^9 lines have an index of 32 MB
LONGEST_LINE = 65_536  # bytes
SYNC_EVERY = 64 << 20  # bytes that a crash of the machine may cost, at most


class Builder:
    """Reads the bytes of a source from `offset` on, in chunks of any size, until `finish`."""

    def __init__(
        self,
        cache: Path,
        identity: str,
        *,
        data: Path | None = None,
        wait: bool = False,
        every: int = EVERY,
        longest: int = LONGEST_LINE,
    ) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self._files = files_of(cache, identity)
        self._copy = data is None
        self._path = data or self._files.data_part
        self._every = every
        self._longest = longest
        self._index = _lock(self._files.index_part, wait=wait)
        try:
            mode = os.O_RDWR | os.O_CREAT if self._copy else os.O_RDONLY
            self._data = os.open(self._path, mode | os.O_CLOEXEC, 0o600)
        except BaseException:
            os.close(self._index)
            raise
        self._begun = os.fstat(self._data)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._offsets = array("Q")  # not yet written
        self._recover()

    def restart(self) -> None:
        """Start again: the files of an earlier build may have another content."""
        os.ftruncate(self._index, 0)
        self._recover()

    def _recover(self) -> None:
        """Go back to the last offset that matches the data; what follows may be incomplete.

        The cut must be on disk before anything new is written. Otherwise a second crash could
        leave old offsets that point to data which was never written.
        """
        header = HEADER.pack(MAGIC, self._every, 0, 0, 0)
        count = 0
        if os.pread(self._index, HEADER.size, 0) == header:
            count = self._ascending()
        last = 0
        while count > 1:
            (last,) = OFFSET.unpack(os.pread(self._index, OFFSET.size, self._at(count - 1)))
            if os.pread(self._data, 1, last - 1) == b"\n":
                break
            count -= 1
        if count <= 1:
            count, last = 1, 0
            os.pwrite(self._index, header + OFFSET.pack(0), 0)
        os.ftruncate(self._index, self._at(count))
        os.fsync(self._index)
        if self._copy:
            os.ftruncate(self._data, last)
        self._written = count
        self.offset = self._synced = self._line_start = last
        self.lines = (count - 1) * self._every

    def _ascending(self) -> int:
        """The number of offsets before the first invalid one: after a crash of the machine some may
        be zeros although later ones were written."""
        count, before = 0, -1
        while piece := os.pread(self._index, CHUNK, self._at(count)):
            offsets = array("Q", piece[: len(piece) // OFFSET.size * OFFSET.size])
            for offset in offsets:
                if offset <= before:
                    return count
                before = offset
                count += 1
            if len(piece) < CHUNK:
                break
        return count

    @staticmethod
    def _at(number: int) -> int:
        return HEADER.size + number * OFFSET.size

    def feed(self, chunk: bytes) -> None:
        """Add the next bytes. An invalid line is refused by its number, and the files deleted."""
        self._check_text(chunk)
        pieces = chunk.split(b"\n")
        ends = len(pieces) - 1
        self._check_lengths(pieces)
        if self._copy:
            _write_all(self._data, chunk, self.offset)
        at, done = self.offset, 0
        while ends - done >= (step := self._every - self.lines % self._every):
            at += sum(map(len, pieces[done : done + step])) + step
            done += step
            self.lines += step
            self._offsets.append(at)
        self.lines += ends - done
        self.offset += len(chunk)
        if ends:
            self._line_start = self.offset - len(pieces[-1])
        if self.offset - self._synced >= SYNC_EVERY:
            self._sync()

    def _check_text(self, chunk: bytes, *, final: bool = False) -> None:
        try:
            self._decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            line = self.lines + error.object.count(b"\n", 0, error.start) + 1
            self._refuse(f"line {line} is not UTF-8")

    def _check_lengths(self, pieces: list[bytes]) -> None:
        begun = self.offset - self._line_start
        if self.lines == 0:
            begun -= len(BOM)  # a BOM is not part of the line
        if max(begun + len(pieces[0]), max(map(len, pieces))) <= self._longest:
            return
        for number, piece in enumerate(pieces, self.lines + 1):
            if begun + len(piece) > self._longest:
                self._refuse(f"line {number} is longer than {self._longest:,} bytes")
            begun = 0

    def _refuse(self, reason: str) -> NoReturn:
        self.discard()
        raise WrongUse(field="items", reason=f"{reason}.")

    def _sync(self) -> None:
        """The data first: an offset on disk must never point to data that is not."""
        if self._copy:
            os.fsync(self._data)
        _write_all(self._index, self._offsets.tobytes(), self._at(self._written))
        self._written += len(self._offsets)
        self._offsets = array("Q")
        self._synced = self.offset

    def finish(self) -> Items:
        """Complete the build at the end of the source, and make it visible."""
        self._check_text(b"", final=True)
        marked = os.pread(self._data, len(BOM), 0) == BOM
        ends_open = self.offset > self._line_start
        if marked and self.offset == len(BOM):
            ends_open = False
        total = self.lines + ends_open
        if total == 0:
            self._refuse("the source has no line")
        self._sync()
        stat = os.fstat(self._data)
        if not self._copy and (stat.st_size, stat.st_mtime_ns) != (
            self._begun.st_size,
            self._begun.st_mtime_ns,
        ):
            self.discard()
            raise Conflict(field="items", reason=f"{self._path} was changed while it was indexed.")
        if marked:
            os.pwrite(self._index, OFFSET.pack(len(BOM)), self._at(0))
        os.ftruncate(self._index, self._at(-(-total // self._every)))
        header = HEADER.pack(MAGIC, self._every, total, self.offset, stat.st_mtime_ns)
        os.pwrite(self._index, header, 0)
        os.fsync(self._index)
        if self._copy:
            self._path.replace(self._files.data)
        self._files.index_part.replace(self._files.index)
        _sync_directory(self._files.index.parent)
        return Items(self._files.index, self._files.data if self._copy else self._path)

    def discard(self) -> None:
        """Delete what was built so far."""
        if self._copy:
            self._files.data_part.unlink(missing_ok=True)
        self._files.index_part.unlink(missing_ok=True)
        self._offsets = array("Q")

    def close(self) -> None:
        """Stop; another builder of this source can resume at the last offset written."""
        if self._index >= 0:
            os.close(self._data)
            os.close(self._index)  # releases the lock as well
            self._index = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                self._sync()  # after a broken connection the next builder resumes here
        finally:
            self.close()


def build(
    cache: Path,
    identity: str,
    source: Callable[[int], Iterable[bytes]],
    *,
    data: Path | None = None,
) -> Items:
    """The indexed source. If it does not exist yet, one process at a time builds it.

    `source(offset)` gives the bytes from that offset on.
    """
    items = open_items(cache, identity, data=data)
    if items is not None:
        return items
    with Builder(cache, identity, data=data, wait=True) as builder:
        items = open_items(cache, identity, data=data)  # built during the wait?
        if items is not None:
            builder.discard()
            return items
        for chunk in source(builder.offset):
            builder.feed(chunk)
        return builder.finish()


def index_file(cache: Path, path: Path) -> Items:
    """A local file. It is read in place; only its index is written."""
    try:
        identity = file_identity(path)
    except OSError as error:
        raise WrongUse(field="items", reason=f"{path} cannot be read: {error.strerror}.") from error
    if not path.is_file():
        raise WrongUse(field="items", reason=f"{path} is not a file.")

    def source(offset: int) -> Iterator[bytes]:
        with path.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(CHUNK):
                yield chunk

    return build(cache, identity, source, data=path)


def _lock(path: Path, *, wait: bool) -> int:
    """Open and lock a file. If it was renamed while this process waited, open it again."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(descriptor)
            raise Conflict(
                field="items", reason="another process is building this index."
            ) from None
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view = view[written:]
        at += written


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
