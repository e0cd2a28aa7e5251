"""Submissions are cut into chunks, and errors name the position in the whole submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.client import chunks, target_files
from drumline.client.chunks import Chunk
from drumline.command_layer.targets import CHUNK_BYTES, CHUNK_SIZE
from drumline.errors import UnknownHandler, WrongUse


def sizes(cut: list[Chunk], argument: str) -> list[int]:
    return [len(chunk.arguments[argument]) for chunk in cut]


def test_a_count_is_cut_into_chunks() -> None:
    cut = list(chunks.of_count(2 * CHUNK_SIZE + 1))
    assert [chunk.arguments["count"] for chunk in cut] == [CHUNK_SIZE, CHUNK_SIZE, 1]
    assert [chunk.done for chunk in cut] == [CHUNK_SIZE, 2 * CHUNK_SIZE, 2 * CHUNK_SIZE + 1]
    assert list(chunks.of_count(0)) == []


def test_targets_are_cut_by_number_and_by_size() -> None:
    assert sizes(list(chunks.of_targets(map(str, range(CHUNK_SIZE + 1)))), "targets") == [
        CHUNK_SIZE,
        1,
    ]
    large = {"param": "x" * (CHUNK_BYTES // 3)}
    assert sizes(list(chunks.of_targets([large] * 7)), "targets") == [3, 3, 1]


def test_instances_are_cut_with_their_params() -> None:
    instances = [f"i{n}" for n in range(CHUNK_SIZE + 2)]
    cut = list(chunks.of_params(range(CHUNK_SIZE + 2), instances))
    assert sizes(cut, "params") == sizes(cut, "instance_ids") == [CHUNK_SIZE, 2]
    assert cut[1].arguments["instance_ids"] == instances[CHUNK_SIZE:]


def test_an_error_in_a_later_chunk_names_the_position_in_the_submission() -> None:
    second = list(chunks.of_targets(map(str, range(CHUNK_SIZE + 5))))[1]
    error = WrongUse(field="param.n", reason="is missing").within("target 3", index=3)
    message = r"^target 5003: param\.n: is missing$"
    with pytest.raises(WrongUse, match=message) as caught, second.naming_source():
        raise error
    assert caught.value.details == {"field": "param.n", "reason": "is missing", "index": 5003}


def test_an_error_in_a_file_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"target_id": "a"}\n\n{"target_id": "b"}\n')
    (chunk,) = target_files.read(str(path))
    error = WrongUse(field="param", reason="is missing").within("target 1", index=1)
    message = r"t\.jsonl line 3: param: is missing$"
    with pytest.raises(WrongUse, match=message), chunk.naming_source():
        raise error


def test_an_error_without_a_position_is_not_changed() -> None:
    (chunk,) = chunks.of_targets(["a"])
    error = UnknownHandler(type="x", target_type=None, known="y")
    with pytest.raises(UnknownHandler) as caught, chunk.naming_source():
        raise error
    assert caught.value is error
