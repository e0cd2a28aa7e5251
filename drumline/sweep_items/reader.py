"""The items of a sweep, one in each line: any of 10^10 lines is read with two seeks.

A source (a list, a file, the body of a URL) is read once. Its content is stored in a data file,
unless it is a local file, and the offset of every 256th line in an index file. Both are named by
the identity of the content, so that a changed source is a different source. `builder` writes them.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from drumline.errors import Conflict, WrongUse

CHUNK = 1 << 20
FOLDER = "items"  # of the run directory: where sources are cached

# Native byte order: a cache never leaves its host.
HEADER = struct.Struct("=8sQQQQ")  # magic, lines between offsets, total (0: part), size, mtime
OFFSET = struct.Struct("=Q")
_PAIR = struct.Struct("=QQ")
MAGIC = b"drumidx1"
BOM = codecs.BOM_UTF8


@dataclass(frozen=True)
class Files:
    data: Path
    data_part: Path
    index: Path
    index_part: Path


def files_of(cache: Path, identity: str) -> Files:
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    data, index = cache / f"{key}.items", cache / f"{key}.index"
    return Files(data, data.with_suffix(".items.part"), index, index.with_suffix(".index.part"))


def file_identity(path: Path) -> str:
    """A file with another size or modification time has another identity."""
    stat = path.stat()
    return f"file {path.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def url_identity(url: str, *, etag: str = "", modified: str = "", length: str = "") -> str | None:
    """From the response's ETag, or else from Last-Modified and Content-Length. None if the content
    cannot be recognised: the caller then needs an identity of its own."""
    if etag:
        return f"url {url} etag {etag}"
    if modified and length:
        return f"url {url} modified {modified} {length}"
    return None


def lines(items: Iterable[str]) -> Iterator[bytes]:
    """The content of a source that holds these items, in chunks."""
    yield BOM  # the reader drops the first BOM: this one, not that of an item
    chunk = bytearray()
    for number, item in enumerate(items, 1):
        if "\n" in item or item.endswith("\r"):
            raise WrongUse(field="items", reason=f"item {number} contains a line break.")
        try:
            chunk += item.encode()
        except UnicodeEncodeError:
            raise WrongUse(field="items", reason=f"item {number} is not valid Unicode.") from None
        chunk += b"\n"
        if len(chunk) >= CHUNK:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)


class Items:
    """The lines of an indexed source. Safe to share between threads."""

    def __init__(self, index: Path, data: Path) -> None:
        self._index = self._data = -1
        try:
            self._index = os.open(index, os.O_RDONLY | os.O_CLOEXEC)
            self._data = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
            header = os.pread(self._index, HEADER.size, 0)
            magic, self._every, self.total, self._size, self._mtime = HEADER.unpack(header)
            if magic != MAGIC or not self.total:
                raise ValueError("not an index")
            blocks = -(-self.total // self._every)
            if os.fstat(self._index).st_size != HEADER.size + blocks * OFFSET.size:
                raise ValueError("the index is not whole")
            if not self._unchanged():
                raise ValueError("the data is not what was indexed")
        except BaseException:
            self.close()
            raise
        self._last: tuple[int, list[bytes]] = (-1, [])

    def _unchanged(self) -> bool:
        stat = os.fstat(self._data)
        return (stat.st_size, stat.st_mtime_ns) == (self._size, self._mtime)

    def __getitem__(self, index: int) -> str:
        return self.read(index, index + 1)[0]

    def read(self, start: int, stop: int) -> list[str]:
        """The items [start, stop)."""
        if not 0 <= start <= stop <= self.total:
            raise IndexError(f"items {start} to {stop} of {self.total}")
        found: list[bytes] = []
        while start < stop:
            block, skip = divmod(start, self._every)
            lines = self._block(block)[skip : skip + stop - start]
            found += lines
            start += len(lines)
        return [line.removesuffix(b"\r").decode() for line in found]

    def _block(self, number: int) -> list[bytes]:
        """The lines between two offsets. Sweeps read forward, so the last block is cached."""
        cached, block = self._last  # read once: another thread may replace it
        if cached == number:
            return block
        at = HEADER.size + number * OFFSET.size
        offsets = os.pread(self._index, _PAIR.size, at) + OFFSET.pack(self._size)
        low, high = _PAIR.unpack_from(offsets)  # the end of the data follows the last offset
        expected = min(self._every, self.total - number * self._every)
        block = os.pread(self._data, high - low, low).split(b"\n")[:expected]
        if len(block) != expected or not self._unchanged():
            raise Conflict(field="items", reason="the source has changed since it was indexed.")
        self._last = (number, block)
        return block

    def close(self) -> None:
        for name in ("_index", "_data"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_items(cache: Path, identity: str, *, data: Path | None = None) -> Items | None:
    """The indexed source if it is complete; None if it is missing or damaged."""
    files = files_of(cache, identity)
    try:
        return Items(files.index, data or files.data)
    except (FileNotFoundError, ValueError, struct.error):
        return None


def forget(cache: Path, identity: str) -> None:
    """Free the disk space. A process that has the source open can go on reading."""
    files = files_of(cache, identity)
    for path in (files.index, files.data, files.index_part, files.data_part):
        path.unlink(missing_ok=True)
