"""The items of a sweep, one a line: any of 10^10 lines is read with two seeks, none are held.

A source (a list, a file, the body of a URL) is streamed once. What arrives is kept in a data file,
unless it is a local file anyway, and the offset of every 256th line in an index beside it. Both are
keyed by the identity of the content, so that a changed source is another source.

Building can be broken off anywhere: the parts are resumed at the last line known to be safe, and
become visible by a rename, the index last.
"""

from __future__ import annotations

import codecs
import fcntl
import hashlib
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from drumline.errors import Conflict, WrongUse

EVERY = 256  # lines between two offsets: 10^9 lines have an index of 32 MB
LONGEST_LINE = 65_536  # bytes
CHUNK = 1 << 20
SYNC_EVERY = 64 << 20  # bytes that a crash of the machine may cost, at most

# Native byte order: a cache never leaves its host.
_HEADER = struct.Struct("=8sQQQQ")  # magic, lines between offsets, total (0: part), size, mtime
_OFFSET = struct.Struct("=Q")
_PAIR = struct.Struct("=QQ")
_MAGIC = b"drumidx1"
_BOM = codecs.BOM_UTF8


@dataclass(frozen=True)
class _Files:
    data: Path
    data_part: Path
    index: Path
    index_part: Path


def _files(cache: Path, identity: str) -> _Files:
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    data, index = cache / f"{key}.items", cache / f"{key}.index"
    return _Files(data, data.with_suffix(".items.part"), index, index.with_suffix(".index.part"))


def file_identity(path: Path) -> str:
    """Another size or another time of change is another content."""
    stat = path.stat()
    return f"file {path.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def url_identity(url: str, *, etag: str = "", modified: str = "", length: str = "") -> str | None:
    """From the answer's ETag, or else Last-Modified and Content-Length. None: not recognisable,
    so that the caller must key it by something of its own, and fetch it whole each time."""
    if etag:
        return f"url {url} etag {etag}"
    if modified and length:
        return f"url {url} modified {modified} {length}"
    return None


def lines(items: Iterable[str]) -> Iterator[bytes]:
    """A list of items as the chunks of a source."""
    yield _BOM  # the reader drops one: without it, an item that begins with one would lose it
    chunk = bytearray()
    for number, item in enumerate(items, 1):
        if "\n" in item or item.endswith("\r"):
            raise WrongUse(reason=f"items: item {number} has a line break in it.")
        try:
            chunk += item.encode()
        except UnicodeEncodeError:
            raise WrongUse(reason=f"items: item {number} is not valid Unicode.") from None
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
            header = os.pread(self._index, _HEADER.size, 0)
            magic, self._every, self.total, self._size, self._mtime = _HEADER.unpack(header)
            if magic != _MAGIC or not self.total:
                raise ValueError("not an index")
            blocks = -(-self.total // self._every)
            if os.fstat(self._index).st_size != _HEADER.size + blocks * _OFFSET.size:
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
            part = self._block(block)[skip : skip + stop - start]
            found += part
            start += len(part)
        return [line.removesuffix(b"\r").decode() for line in found]

    def _block(self, number: int) -> list[bytes]:
        """The lines between two offsets. Sweeps read forward, so the last block is kept."""
        kept, block = self._last  # read once: another thread may replace it
        if kept == number:
            return block
        at = _HEADER.size + number * _OFFSET.size
        offsets = os.pread(self._index, _PAIR.size, at) + _OFFSET.pack(self._size)
        low, high = _PAIR.unpack_from(offsets)  # after the last offset comes the end of the data
        expected = min(self._every, self.total - number * self._every)
        block = os.pread(self._data, high - low, low).split(b"\n")[:expected]
        if len(block) != expected or not self._unchanged():
            raise Conflict(reason="items: the source has changed since it was indexed.")
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
    """The indexed source, if it is complete. What is damaged counts as missing."""
    files = _files(cache, identity)
    try:
        return Items(files.index, data or files.data)
    except (FileNotFoundError, ValueError, struct.error):
        return None


def forget(cache: Path, identity: str) -> None:
    """Free the disk space. Who has it open can go on reading."""
    files = _files(cache, identity)
    for path in (files.index, files.data, files.index_part, files.data_part):
        path.unlink(missing_ok=True)


class Builder:
    """Takes the bytes of a source from `offset` on, in chunks of any size, until `finish`."""

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
        self._files = _files(cache, identity)
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

    def _recover(self) -> None:
        """Go back to the last offset that the data bears out; what follows it may be torn.

        What is cut off must be off the disk before anything new is written: else a second crash
        could leave old offsets that speak of data which never got there.
        """
        header = _HEADER.pack(_MAGIC, self._every, 0, 0, 0)
        count = 0
        if os.pread(self._index, _HEADER.size, 0) == header:
            count = self._ascending()
        last = 0
        while count > 1:
            (last,) = _OFFSET.unpack(os.pread(self._index, _OFFSET.size, self._at(count - 1)))
            if os.pread(self._data, 1, last - 1) == b"\n":
                break
            count -= 1
        if count <= 1:
            count, last = 1, 0
            os.pwrite(self._index, header + _OFFSET.pack(0), 0)
        os.ftruncate(self._index, self._at(count))
        os.fsync(self._index)
        if self._copy:
            os.ftruncate(self._data, last)
        self._written = count
        self.offset = self._synced = self._line_start = last
        self.lines = (count - 1) * self._every

    def _ascending(self) -> int:
        """How many offsets there are before the first that cannot be: a machine that crashes may
        leave zeros in place of some and yet have written later ones."""
        count, before = 0, -1
        while piece := os.pread(self._index, CHUNK, self._at(count)):
            offsets = array("Q", piece[: len(piece) // _OFFSET.size * _OFFSET.size])
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
        return _HEADER.size + number * _OFFSET.size

    def feed(self, chunk: bytes) -> None:
        """The next bytes. A bad line is refused by its number, and nothing of the source kept."""
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
            begun -= len(_BOM)  # there may be one, and it is no part of the line
        if max(begun + len(pieces[0]), max(map(len, pieces))) <= self._longest:
            return
        for number, piece in enumerate(pieces, self.lines + 1):
            if begun + len(piece) > self._longest:
                self._refuse(f"line {number} is longer than {self._longest:,} bytes")
            begun = 0

    def _refuse(self, reason: str) -> NoReturn:
        self.discard()
        raise WrongUse(reason=f"items: {reason}.")

    def _sync(self) -> None:
        """The data first: an offset on disk must never speak of lines that are not."""
        if self._copy:
            os.fsync(self._data)
        _write_all(self._index, self._offsets.tobytes(), self._at(self._written))
        self._written += len(self._offsets)
        self._offsets = array("Q")
        self._synced = self.offset

    def finish(self) -> Items:
        """The source has ended: make it visible."""
        self._check_text(b"", final=True)
        marked = os.pread(self._data, len(_BOM), 0) == _BOM
        ends_open = self.offset > self._line_start
        if marked and self.offset == len(_BOM):
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
            raise Conflict(reason=f"items: {self._path} was changed while it was indexed.")
        if marked:
            os.pwrite(self._index, _OFFSET.pack(len(_BOM)), self._at(0))
        os.ftruncate(self._index, self._at(-(-total // self._every)))
        header = _HEADER.pack(_MAGIC, self._every, total, self.offset, stat.st_mtime_ns)
        os.pwrite(self._index, header, 0)
        os.fsync(self._index)
        if self._copy:
            self._path.replace(self._files.data)
        self._files.index_part.replace(self._files.index)
        _sync_directory(self._files.index.parent)
        return Items(self._files.index, self._files.data if self._copy else self._path)

    def discard(self) -> None:
        """Forget what was taken so far."""
        if self._copy:
            self._files.data_part.unlink(missing_ok=True)
        self._files.index_part.unlink(missing_ok=True)
        self._offsets = array("Q")

    def close(self) -> None:
        """Stop here; another builder of this source can go on at the last offset written."""
        if self._index >= 0:
            os.close(self._data)
            os.close(self._index)  # and with it goes the lock
            self._index = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                self._sync()  # a broken connection: the next builder goes on from here
        finally:
            self.close()


def build(
    cache: Path,
    identity: str,
    source: Callable[[int], Iterable[bytes]],
    *,
    data: Path | None = None,
) -> Items:
    """The indexed source; if need be it is built, by one process at a time.

    `source(offset)` gives the bytes from that offset on.
    """
    items = open_items(cache, identity, data=data)
    if items is not None:
        return items
    with Builder(cache, identity, data=data, wait=True) as builder:
        items = open_items(cache, identity, data=data)  # built while we waited?
        if items is not None:
            builder.discard()
            return items
        for chunk in source(builder.offset):
            builder.feed(chunk)
        return builder.finish()


def index_file(cache: Path, path: Path) -> Items:
    """A local file, where it is: only its index is written."""
    try:
        identity = file_identity(path)
    except OSError as error:
        raise WrongUse(reason=f"items: {path} cannot be read: {error.strerror}.") from error
    if not path.is_file():
        raise WrongUse(reason=f"items: {path} is not a file.")

    def source(offset: int) -> Iterator[bytes]:
        with path.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(CHUNK):
                yield chunk

    return build(cache, identity, source, data=path)


def _lock(path: Path, *, wait: bool) -> int:
    """Open and lock. Who waited may hold a file that was renamed meanwhile: then once more."""
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
            raise Conflict(reason="items: another process is building this index.") from None
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
