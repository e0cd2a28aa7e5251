"""Targets files: one target a line, as JSON objects or as CSV under a header.

They are read as a stream and cut into pieces, so that a file of millions of lines needs the memory
of one piece. A bad line is an error that names the file, the line and the field.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from drumline.command_layer.fields import PARAM_LIMIT, Text64, Text255, invalid_field
from drumline.errors import WrongUse

PIECE = 5000
"""Targets in one message and one transaction."""
PIECE_BYTES = 8 * 1024 * 1024
"""Where a piece is cut however few its targets: a message has at most four times this."""
LINE_LIMIT = 4 * PARAM_LIMIT


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a targets file."""

    target_id: Text255 | None = None
    target_name: Text255 | None = None
    target_env: Text64 | None = None
    param: Any = None
    before_update: Any = None
    after_update: Any = None


DOCUMENTS = frozenset({"param", "before_update", "after_update"})
"""The fields that are JSON, in a CSV file too."""


class TargetChunk(msgspec.Struct):
    """Some lines of a file, ready to be sent."""

    targets: list[msgspec.Raw] = msgspec.field(default_factory=list)
    lines: list[int] = msgspec.field(default_factory=list)
    size: int = 0
    read: int = 0
    """Bytes of the file up to here."""


def read(path: str) -> Iterator[TargetChunk]:
    """The pieces of a file; `-` is standard input. A name that ends in .csv is CSV."""
    try:
        if path == "-":
            yield from _cut(path, _json_lines(path, sys.stdin.buffer))
        elif path.lower().endswith(".csv"):
            with Path(path).open(newline="", encoding="utf-8-sig") as text:
                yield from _cut(path, _csv_lines(path, text))
        else:
            with Path(path).open("rb") as file:
                yield from _cut(path, _json_lines(path, file))
    except OSError as error:
        raise WrongUse(reason=f"{path}: {error.strerror}") from None


def _cut(path: str, lines: Iterable[tuple[int, int, Target]]) -> Iterator[TargetChunk]:
    encode = msgspec.msgpack.Encoder().encode
    piece = TargetChunk()
    for number, read, target in lines:
        try:
            packed = encode(target)
        except OverflowError:
            raise _bad(path, number, "a number in it does not fit into 64 bits") from None
        piece.targets.append(msgspec.Raw(packed))
        piece.lines.append(number)
        piece.size += len(packed)
        piece.read = read
        if len(piece.targets) == PIECE or piece.size >= PIECE_BYTES:
            yield piece
            piece = TargetChunk()
    if piece.targets:
        yield piece


def _json_lines(path: str, file: IO[bytes]) -> Iterator[tuple[int, int, Target]]:
    decode = msgspec.json.Decoder(Target).decode
    read = 0
    for number, line in enumerate(iter(partial(file.readline, LINE_LIMIT + 1), b""), 1):
        read += len(line)
        if len(line) > LINE_LIMIT:
            raise _bad(path, number, f"it has more than {LINE_LIMIT} bytes")
        if line.isspace():
            continue
        try:
            yield number, read, decode(line)
        except msgspec.ValidationError as error:
            raise WrongUse(**invalid_field(error)).within(_line(path, number)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _bad(path, number, f"it is not JSON: {error}") from None


def _csv_lines(path: str, file: Any) -> Iterator[tuple[int, int, Target]]:
    csv.field_size_limit(LINE_LIMIT)
    reader = csv.reader(file, strict=True)
    try:
        header = next(reader, [])
        known = Target.__struct_fields__
        for name in header:
            if name not in known:
                raise _bad(path, 1, f"there is no field {name!r}; known: {', '.join(known)}")
        if len(set(header)) != len(header) or not header:
            raise _bad(path, 1, "the header must name each of its fields once")
        for cells in reader:
            if cells:
                target = _from_cells(path, reader.line_num, header, cells)
                yield reader.line_num, file.buffer.tell(), target
    except csv.Error as error:
        raise _bad(path, reader.line_num, str(error)) from None
    except UnicodeDecodeError as error:
        raise _bad(path, reader.line_num + 1, f"it is not UTF-8: {error.reason}") from None


def _from_cells(path: str, number: int, header: list[str], cells: list[str]) -> Target:
    if len(cells) != len(header):
        raise _bad(path, number, f"it has {len(cells)} cells, the header has {len(header)}")
    values: dict[str, Any] = {}
    for name, cell in zip(header, cells, strict=True):
        if not cell:
            continue
        try:
            values[name] = msgspec.json.decode(cell) if name in DOCUMENTS else cell
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            reason = f"it is not JSON: {error}"
            raise WrongUse(field=name, reason=reason).within(_line(path, number)) from None
    try:
        return msgspec.convert(values, Target)
    except msgspec.ValidationError as error:
        raise WrongUse(**invalid_field(error)).within(_line(path, number)) from None


def _bad(path: str, number: int, reason: str) -> WrongUse:
    return WrongUse(reason=reason).within(_line(path, number))


def _line(path: str, number: int) -> str:
    return f"{path} line {number}"
