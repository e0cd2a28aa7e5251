"""Indexed item sources: items are read back as they were written."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drumline.errors import Conflict, WrongUse
from drumline.sweep_items.builder import EVERY, LONGEST_LINE, Builder, build, index_file
from drumline.sweep_items.reader import (
    Items,
    file_identity,
    forget,
    lines,
    open_items,
    url_identity,
)
from tests.unit.item_sources import LINES, chunks_of, read_all


@settings(deadline=None, max_examples=60)
@given(
    wanted=LINES,
    newline=st.sampled_from(["\n", "\r\n"]),
    open_end=st.booleans(),
    bom=st.booleans(),
    every=st.sampled_from([1, 2, 3, 7, 256]),
    cuts=st.lists(st.integers(0, 1_000), max_size=30),
    data=st.data(),
)
def test_every_item_is_read_back(
    wanted: list[str],
    newline: str,
    open_end: bool,
    bom: bool,
    every: int,
    cuts: list[int],
    data: st.DataObject,
) -> None:
    if open_end and wanted[-1] == "":
        wanted[-1] = "the end"  # an open line without a character is none
    if not bom:
        wanted[0] = wanted[0].removeprefix("\ufeff")
        if open_end and wanted == [""]:
            wanted = ["the end"]
    text = newline.join(wanted) + ("" if open_end else newline)
    content = text.encode("utf-8-sig" if bom else "utf-8")
    with tempfile.TemporaryDirectory() as folder:
        with Builder(Path(folder), "x", every=every) as builder:
            for chunk in chunks_of(content, cuts)(0):
                builder.feed(chunk)
            found = builder.finish()
        with found:
            assert found.total == len(wanted)
            assert read_all(found) == wanted
            index = data.draw(st.integers(0, len(wanted) - 1))
            assert found[index] == wanted[index]
            low = data.draw(st.integers(0, len(wanted)))
            high = data.draw(st.integers(low, len(wanted)))
            assert found.read(low, high) == wanted[low:high]
        with open_again(Path(folder)) as again:
            assert read_all(again) == wanted


def open_again(cache: Path, identity: str = "x", data: Path | None = None) -> Items:
    found = open_items(cache, identity, data=data)
    assert found is not None
    return found


def test_a_line_may_be_as_long_as_allowed(tmp_path: Path) -> None:
    line = "x" * LONGEST_LINE
    with build(tmp_path, "x", lambda _: lines([line, "short", line])) as found:
        assert read_all(found) == [line, "short", line]


@given(wanted=LINES)
@example(wanted=["\ufeffa mark that belongs to the item"])
@example(wanted=[""])
@settings(deadline=None, max_examples=30)
def test_a_list_is_read_back_unchanged(wanted: list[str]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        build(Path(folder), "x", chunks_of(b"".join(lines(wanted)), [])) as found,
    ):
        assert read_all(found) == wanted


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("two\nlines", "item 2 contains a line break"),
        ("carriage\r", "item 2 contains a line break"),
        ("\ud800", "item 2 is not valid Unicode"),
    ],
)
def test_a_list_item_that_is_not_a_line_is_refused(bad: str, says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        list(lines(["fine", bad]))


def test_a_file_is_indexed_in_place(tmp_path: Path) -> None:
    source, cache = tmp_path / "ids.txt", tmp_path / "cache"
    source.write_text("a\nb\nc\n")
    with index_file(cache, source) as found:
        assert read_all(found) == ["a", "b", "c"]
    assert [path.suffix for path in cache.iterdir()] == [".index"]
    index = next(cache.iterdir())
    before = index.stat().st_mtime_ns
    with index_file(cache, source) as found:
        assert found.total == 3
    assert index.stat().st_mtime_ns == before  # it was used, not built again


def test_a_changed_file_is_a_different_source(tmp_path: Path) -> None:
    source, cache = tmp_path / "ids.txt", tmp_path / "cache"
    source.write_text("a\nb\nc\n")
    identity = file_identity(source)
    index_file(cache, source).close()
    source.write_text("x\ny\nz\n")
    os.utime(source, ns=(1, 1))
    assert file_identity(source) != identity
    assert open_items(cache, identity, data=source) is None
    with index_file(cache, source) as found:
        assert read_all(found) == ["x", "y", "z"]


def test_a_file_that_changes_during_reading_is_detected(tmp_path: Path) -> None:
    source, cache = tmp_path / "ids.txt", tmp_path / "cache"
    source.write_text("".join(f"{n:06}\n" for n in range(1_000)))
    with index_file(cache, source) as found:
        assert found[0] == "000000"
        with source.open("r+b") as file:
            file.write(b"999999\n")
        os.utime(source, ns=(1, 1))
        with pytest.raises(Conflict, match="has changed since it was indexed"):
            found.read(500, 501)


def test_a_file_that_changes_during_indexing_is_detected(tmp_path: Path) -> None:
    source, cache = tmp_path / "ids.txt", tmp_path / "cache"
    source.write_text("a\nb\n")

    def meddled(_: int) -> Iterator[bytes]:
        yield b"a\nb\n"
        with source.open("a") as file:
            file.write("c\n")

    with pytest.raises(Conflict, match="was changed while it was indexed"):
        build(cache, file_identity(source), meddled, data=source)
    assert list(cache.iterdir()) == []


def test_a_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"nowhere.txt cannot be read: No such file or directory"):
        index_file(tmp_path / "cache", tmp_path / "nowhere.txt")
    with pytest.raises(WrongUse, match="is not a file"):
        index_file(tmp_path / "cache", tmp_path)


def test_a_forgotten_source_is_deleted_but_open_readers_can_go_on(tmp_path: Path) -> None:
    with build(tmp_path, "x", lambda _: lines(["a", "b"])) as found:
        forget(tmp_path, "x")
        assert list(tmp_path.iterdir()) == []
        assert found[1] == "b"
    assert open_items(tmp_path, "x") is None


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 3), (2, 1), (2, 3)])
def test_items_past_the_end_are_an_error(tmp_path: Path, start: int, stop: int) -> None:
    with (
        build(tmp_path, "x", lambda _: lines(["a", "b"])) as found,
        pytest.raises(IndexError, match="of 2"),
    ):
        found.read(start, stop)


def test_a_url_is_identified_by_its_etag_or_by_time_and_length() -> None:
    url = "https://example.com/ids"
    assert url_identity(url, etag='"1"') != url_identity(url, etag='"2"')
    assert url_identity(url, etag='"1"') != url_identity(url + "2", etag='"1"')
    assert url_identity(url, modified="Mon", length="1") != url_identity(
        url, modified="Mon", length="2"
    )
    assert url_identity(url, etag='"1"', modified="Mon", length="1") == url_identity(
        url, etag='"1"', modified="Tue", length="1"
    )
    assert url_identity(url, modified="Mon") is None


def test_a_large_source_is_built_and_read_in_little_memory(tmp_path: Path) -> None:
    def source(_: int) -> Iterator[bytes]:
        for block in range(200):
            yield b"".join(
                b"%08d of the items\n" % n for n in range(block * 1_000, block * 1_000 + 1_000)
            )

    tracemalloc.start()
    try:
        with build(tmp_path, "x", source) as found:
            assert found.total == 200_000
            for index in range(0, 200_000, 997):
                assert found[index] == f"{index:08} of the items"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (data,) = tmp_path.glob("*.items")
    assert data.stat().st_size > 4_000_000
    assert peak < 500_000


def test_a_random_item_costs_two_reads_of_one_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path, "x", lambda _: lines(str(n) for n in range(100_000))).close()
    with open_again(tmp_path) as found:
        reads: list[int] = []
        pread = os.pread

        def counted(descriptor: int, size: int, at: int) -> bytes:
            reads.append(size)
            return pread(descriptor, size, at)

        monkeypatch.setattr(os, "pread", counted)
        assert found[99_999] == "99999"
        assert found[5] == "5"
        assert len(reads) == 4
        assert max(reads) <= EVERY * len(b"99999\n")
        assert found.read(6, 200) == [str(n) for n in range(6, 200)]
        assert len(reads) == 4  # the block was kept
