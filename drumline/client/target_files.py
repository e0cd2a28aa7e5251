"""Files of targets: one target a line, as JSON objects or as CSV under a header.

A file is read as a stream, so that millions of lines need the memory of one chunk. A bad line is
an error that names the file, the line and the field.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from drumline.client.chunks import Chunk, Encoded, cut
from drumline.client.control import encode
from drumline.command_layer.fields import PARAM_LIMIT, invalid_field
from drumline.command_layer.targets import Target
from drumline.errors import WrongUse

LINE_LIMIT = 4 * PARAM_LIMIT
JSON_FIELDS = frozenset({"param", "before_update", "after_update"})
"""The cells of a CSV file that hold JSON."""


def read(path: str) -> Iterator[Chunk]:
    """The chunks of a file; `-` is standard input. A name that ends in .csv is CSV."""
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


def _cut(path: str, lines: Iterator[tuple[int, int, Target]]) -> Iterator[Chunk]:
    return cut(f"{path} line", _encoded(path, lines), "targets")


def _encoded(path: str, lines: Iterator[tuple[int, int, Target]]) -> Iterator[Encoded]:
    for number, read, target in lines:
        try:
            yield Encoded(number, encode(target), read)
        except OverflowError:
            raise _bad(path, number, "a number in it does not fit into 64 bits") from None


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
            raise _bad(path, number, **invalid_field(error)) from None
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
            values[name] = msgspec.json.decode(cell) if name in JSON_FIELDS else cell
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise _bad(path, number, f"it is not JSON: {error}", name) from None
    try:
        return msgspec.convert(values, Target)
    except msgspec.ValidationError as error:
        raise _bad(path, number, **invalid_field(error)) from None


def _bad(path: str, number: int, reason: str, field: str | None = None) -> WrongUse:
    error = WrongUse(reason=reason) if field is None else WrongUse(field=field, reason=reason)
    return error.within(f"{path} line {number}")
