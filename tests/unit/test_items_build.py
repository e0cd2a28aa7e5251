"""Builds of an item source: they are resumed, name an invalid line, and exclude each other."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.errors import Conflict, WrongUse
from drumline.sweep_items import builder
from drumline.sweep_items.builder import EVERY, Builder, build
from drumline.sweep_items.reader import lines, open_items
from tests.unit.item_sources import LINES, chunks_of, read_all


@settings(deadline=None, max_examples=60)
@given(
    wanted=LINES,
    every=st.sampled_from([1, 2, 5]),
    breaks=st.lists(st.integers(0, 400), max_size=4),
    cuts=st.lists(st.integers(0, 400), max_size=10),
    sync_every=st.sampled_from([1, 50, 10**9]),
    damage=st.lists(st.sampled_from(["data", "index", "zeros", "none"]), min_size=4, max_size=4),
)
def test_an_interrupted_build_is_resumed(
    wanted: list[str],
    every: int,
    breaks: list[int],
    cuts: list[int],
    sync_every: int,
    damage: list[str],
) -> None:
    """Interrupted repeatedly, with incomplete files: the result is complete."""
    content = b"".join(lines(wanted))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "SYNC_EVERY", sync_every)
        cache = Path(folder)
        for stop, torn in zip(breaks, damage, strict=False):
            made = Builder(cache, "x", every=every)
            for chunk in chunks_of(content, [*cuts, stop])(made.offset):
                if made.offset >= stop:
                    break
                made.feed(chunk)
            made.close()  # without finish(): offsets that were not synced are not in the index
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
    """The files that a crash of the machine may leave behind."""
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
def test_an_index_is_cut_back_to_the_last_offset_that_matches_the_data(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hole: int | None,
    data_left: int,
    resumes_at: int,
) -> None:
    """Lines of 10 bytes. Some of the index, or of the data, was not written to disk."""
    monkeypatch.setattr(builder, "CHUNK", 64)  # the index is read in several pieces
    with Builder(tmp_path, "x", every=1) as made:
        made.feed(b"".join(b"item %04d\n" % n for n in range(40)))
        made._sync()
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
    with Builder(tmp_path, "x", every=1) as resumed:
        assert (resumed.offset, resumed.lines) == (resumes_at, resumes_at // 10)


def test_a_resumed_build_does_not_start_again(tmp_path: Path) -> None:
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
    """A real process, killed in the middle of its writes."""
    script = """
import os, sys
from pathlib import Path
from drumline.sweep_items import builder
builder.SYNC_EVERY = 1_000
builder = builder.Builder(Path(sys.argv[1]), "x")
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
def test_an_invalid_source_is_refused_by_its_line_and_leaves_no_files(
    tmp_path: Path, content: bytes, says: str, cuts: list[int], every: int
) -> None:
    with pytest.raises(WrongUse) as refused, Builder(tmp_path, "x", every=every, longest=20) as b:
        for chunk in chunks_of(content, cuts)(0):
            b.feed(chunk)
        b.finish()
    assert str(refused.value) == says
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["index cut", "data cut", "data gone", "rubbish", "emptied"])
def test_a_damaged_cache_is_built_again(tmp_path: Path, damage: str) -> None:
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
