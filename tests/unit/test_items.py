"""Item sources: what is read is what was written, whatever the chunks and wherever it broke off."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drumline.domain import items_build
from drumline.domain.items import (
    Items,
    file_identity,
    forget,
    lines,
    open_items,
    url_identity,
)
from drumline.domain.items_build import EVERY, LONGEST_LINE, Builder, build, index_file
from drumline.errors import Conflict, WrongUse

LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=12)
LINES = st.lists(LINE, min_size=1, max_size=60)


def chunks_of(content: bytes, cuts: list[int]) -> Callable[[int], Iterator[bytes]]:
    """A source that can begin anywhere and is cut at arbitrary places, also inside a character."""

    def source(offset: int) -> Iterator[bytes]:
        edges = sorted({offset, len(content), *(cut for cut in cuts if cut > offset)})
        for low, high in pairwise(edges):
            yield content[low:high]

    return source


def read_all(found: Items) -> list[str]:
    return found.read(0, found.total)


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


@settings(deadline=None, max_examples=60)
@given(
    wanted=LINES,
    every=st.sampled_from([1, 2, 5]),
    breaks=st.lists(st.integers(0, 400), max_size=4),
    cuts=st.lists(st.integers(0, 400), max_size=10),
    sync_every=st.sampled_from([1, 50, 10**9]),
    damage=st.lists(st.sampled_from(["data", "index", "zeros", "none"]), min_size=4, max_size=4),
)
def test_a_build_that_breaks_off_goes_on_where_it_was(
    wanted: list[str],
    every: int,
    breaks: list[int],
    cuts: list[int],
    sync_every: int,
    damage: list[str],
) -> None:
    """Killed after some bytes, again and again, with torn files: the result is whole."""
    content = b"".join(lines(wanted))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(items_build, "SYNC_EVERY", sync_every)
        cache = Path(folder)
        for stop, torn in zip(breaks, damage, strict=False):
            builder = Builder(cache, "x", every=every)
            for chunk in chunks_of(content, [*cuts, stop])(builder.offset):
                if builder.offset >= stop:
                    break
                builder.feed(chunk)
            builder.close()  # no goodbye: what was not synced is not in the index
            assert open_items(cache, "x") is None
            tear(cache, torn)
        with Builder(cache, "x", every=every) as last:
            assert last.offset <= max([0, *breaks, *cuts])
            for chunk in chunks_of(content, cuts)(last.offset):
                last.feed(chunk)
            found = last.finish()
        with found:
            assert read_all(found) == wanted


def tear(cache: Path, how: str) -> None:
    """What a crash of the machine may leave behind."""
    (data,) = cache.glob("*.items.part")
    (index,) = cache.glob("*.index.part")
    if how == "data":
        os.truncate(data, data.stat().st_size // 2)
    elif how == "index":
        os.truncate(index, max(0, index.stat().st_size - 3))
    elif how == "zeros":
        with index.open("ab") as file:
            file.write(bytes(20))


@pytest.mark.parametrize(
    ("hole", "data_left", "resumes_at"), [(None, 400, 400), (30, 400, 300), (None, 155, 150)]
)
def test_a_part_is_cut_back_to_what_its_data_bears_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hole: int | None,
    data_left: int,
    resumes_at: int,
) -> None:
    """Lines of 10 bytes. Some of the index, or of the data, did not get to the disk."""
    monkeypatch.setattr(items_build, "CHUNK", 64)  # the index is read in several pieces
    with Builder(tmp_path, "x", every=1) as builder:
        builder.feed(b"".join(b"item %04d\n" % n for n in range(40)))
        builder._sync()
    (data,), (index,) = tmp_path.glob("*.items.part"), tmp_path.glob("*.index.part")
    header = index.stat().st_size - 41 * 8
    if hole is not None:
        with index.open("r+b") as file:
            file.seek(header + 8 * (hole + 1))
            file.write(bytes(16))
    os.truncate(data, data_left)
    Builder(tmp_path, "x", every=1).close()
    assert data.stat().st_size == resumes_at
    assert index.stat().st_size == header + 8 * (resumes_at // 10 + 1)
    with Builder(tmp_path, "x", every=1) as builder:
        assert (builder.offset, builder.lines) == (resumes_at, resumes_at // 10)


def test_a_resumed_build_does_not_begin_again(tmp_path: Path) -> None:
    content = b"".join(b"item %d\n" % n for n in range(10_000))
    asked: list[int] = []

    def breaking(offset: int) -> Iterator[bytes]:
        asked.append(offset)
        yield content[offset : offset + 60_000]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        build(tmp_path, "x", breaking)

    def whole(offset: int) -> Iterator[bytes]:
        asked.append(offset)
        yield content[offset:]

    with build(tmp_path, "x", whole) as found:
        assert found.total == 10_000
        assert found[9_999] == "item 9999"
    assert asked[0] == 0
    longest = len(b"item 9999\n")
    assert 60_000 - EVERY * longest <= asked[1] <= 60_000


def test_a_build_killed_at_any_moment_is_resumed(tmp_path: Path) -> None:
    """A real process, ended by the kernel in the middle of its writes."""
    script = """
import os, sys
from pathlib import Path
from drumline.domain import items_build
items_build.SYNC_EVERY = 1_000
builder = items_build.Builder(Path(sys.argv[1]), "x")
for n in range(builder.lines, builder.lines + 3_000):
    builder.feed(b"item %d\\n" % n)
os.kill(os.getpid(), 9)
"""
    for _ in range(3):
        killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
        assert killed.returncode == -9
        assert open_items(tmp_path, "x") is None
    with Builder(tmp_path, "x") as builder:
        assert builder.lines >= 8_000
        builder.feed(b"last\n")
        resumed_at = builder.lines - 1
        with builder.finish() as found:
            assert found.total == resumed_at + 1
            assert found[0] == "item 0"
            assert found.read(resumed_at - 1, resumed_at + 1) == [f"item {resumed_at - 1}", "last"]


@pytest.mark.parametrize("every", [1, 2, 256])
@pytest.mark.parametrize("cuts", [[], [3, 4, 11, 12, 13]])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"one\ntwo\n\xff\xfe\nfour\n", "items: line 3 is not UTF-8."),
        (b"one\ntwo\nthree \xe2\x82", "items: line 3 is not UTF-8."),
        (b"one\ntwo\xe2\n\x82\n", "items: line 2 is not UTF-8."),
        (b"one\n" + b"x" * 21 + b"\nthree\n", "items: line 2 is longer than 20 bytes."),
        (b"one\n\n\n" + b"x" * 50, "items: line 4 is longer than 20 bytes."),
        (b"", "items: the source has no line."),
        (b"\xef\xbb\xbf", "items: the source has no line."),
    ],
)
def test_a_bad_source_names_the_line_and_leaves_nothing(
    tmp_path: Path, content: bytes, says: str, cuts: list[int], every: int
) -> None:
    with pytest.raises(WrongUse) as refused, Builder(tmp_path, "x", every=every, longest=20) as b:
        for chunk in chunks_of(content, cuts)(0):
            b.feed(chunk)
        b.finish()
    assert str(refused.value) == says
    assert list(tmp_path.iterdir()) == []


def test_a_line_may_be_as_long_as_allowed(tmp_path: Path) -> None:
    line = "x" * LONGEST_LINE
    with build(tmp_path, "x", lambda _: lines([line, "short", line])) as found:
        assert read_all(found) == [line, "short", line]


@given(wanted=LINES)
@example(wanted=["\ufeffa mark that belongs to the item"])
@example(wanted=[""])
@settings(deadline=None, max_examples=30)
def test_a_list_comes_back_as_it_was(wanted: list[str]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        build(Path(folder), "x", chunks_of(b"".join(lines(wanted)), [])) as found,
    ):
        assert read_all(found) == wanted


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("two\nlines", "item 2 has a line break in it"),
        ("carriage\r", "item 2 has a line break in it"),
        ("\ud800", "item 2 is not valid Unicode"),
    ],
)
def test_a_list_item_that_is_not_a_line_is_refused(bad: str, says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        list(lines(["fine", bad]))


def test_a_file_is_indexed_where_it_is(tmp_path: Path) -> None:
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


def test_a_changed_file_is_another_source(tmp_path: Path) -> None:
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


def test_a_file_changed_under_a_reader_is_noticed(tmp_path: Path) -> None:
    source, cache = tmp_path / "ids.txt", tmp_path / "cache"
    source.write_text("".join(f"{n:06}\n" for n in range(1_000)))
    with index_file(cache, source) as found:
        assert found[0] == "000000"
        with source.open("r+b") as file:
            file.write(b"999999\n")
        os.utime(source, ns=(1, 1))
        with pytest.raises(Conflict, match="has changed since it was indexed"):
            found.read(500, 501)


def test_a_file_changed_while_it_is_indexed_is_noticed(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("damage", ["index cut", "data cut", "data gone", "rubbish", "emptied"])
def test_a_damaged_cache_counts_as_missing_and_is_built_again(tmp_path: Path, damage: str) -> None:
    source = chunks_of(b"".join(b"%d\n" % n for n in range(1_000)), [])
    build(tmp_path, "x", source).close()
    (data,), (index,) = tmp_path.glob("*.items"), tmp_path.glob("*.index")
    match damage:
        case "index cut":
            os.truncate(index, index.stat().st_size - 8)
        case "data cut":
            os.truncate(data, 100)
        case "data gone":
            data.unlink()
        case "rubbish":
            index.write_bytes(b"\0" * index.stat().st_size)
        case "emptied":
            index.write_bytes(b"")
    assert open_items(tmp_path, "x") is None
    with build(tmp_path, "x", source) as found:
        assert found[999] == "999"


def test_two_builders_of_one_source_exclude_each_other(tmp_path: Path) -> None:
    content = b"a\nb\n"
    first = Builder(tmp_path, "x")
    with pytest.raises(Conflict, match="another process is building"):
        Builder(tmp_path, "x")
    with Builder(tmp_path, "another source"):
        pass

    calls: list[int] = []
    results: list[list[str]] = []

    def source(offset: int) -> Iterator[bytes]:
        calls.append(offset)
        yield content[offset:]

    def second() -> None:
        with build(tmp_path, "x", source) as found:
            results.append(read_all(found))

    waiting = threading.Thread(target=second)
    waiting.start()
    first.feed(content)
    first.finish().close()
    first.close()
    waiting.join(timeout=10)
    assert results == [["a", "b"]]
    assert calls == []  # who waited found it built
    assert not list(tmp_path.glob(f"{next(tmp_path.glob('*.items')).stem}.*.part"))


def test_what_is_forgotten_is_gone_but_who_reads_it_can_go_on(tmp_path: Path) -> None:
    with build(tmp_path, "x", lambda _: lines(["a", "b"])) as found:
        forget(tmp_path, "x")
        assert list(tmp_path.iterdir()) == []
        assert found[1] == "b"
    assert open_items(tmp_path, "x") is None


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 3), (2, 1), (2, 3)])
def test_items_that_are_not_there_are_not_made_up(tmp_path: Path, start: int, stop: int) -> None:
    with (
        build(tmp_path, "x", lambda _: lines(["a", "b"])) as found,
        pytest.raises(IndexError, match="of 2"),
    ):
        found.read(start, stop)


def test_a_url_is_known_by_its_etag_or_by_time_and_length() -> None:
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


def test_a_large_source_is_neither_built_nor_read_in_memory(tmp_path: Path) -> None:
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
