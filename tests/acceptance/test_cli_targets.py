"""Files of targets on the command line: submitted completely or not at all; errors name lines."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.terminal import ENTRY_POINT, SUBMIT, RunningGateway, Terminal, refuses


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.jsonl", b"", ["none in the file"]),
        ("t.jsonl", b"\n\n", ["none in the file"]),
        ("t.jsonl", b'{"target_id": "a"}\n{"target_id": 5}\n', ["line 2: target_id: expected"]),
        ("t.jsonl", b'{"target_id": "a"}\n\n{"name": "b"}\n', ["line 3: name:", "unknown field"]),
        ("t.jsonl", b'{"target_id": "a"}\n{"target_id": ', ["line 2:", "not JSON"]),
        ("t.jsonl", b"[]\n", ["line 1:", "object"]),
        ("t.jsonl", b'{"target_id": "\xff"}\n', ["line 1:", "not JSON"]),
        ("t.jsonl", b'{"param": ' + b"1" * 30 + b"}\n", ["line 1:", "64 bits"]),
        ("t.jsonl", b'{"param": ' + b"[" * 100_000 + b"\n", ["line 1:"]),
        ("t.jsonl", b'{"param": "' + b"x" * (5 * 2**20) + b'"}\n', ["line 1:", "bytes"]),
        ("t.jsonl", b'{}\n{"param": "' + b"x" * (2 * 2**20) + b'"}\n', ["line 2:", "bytes"]),
        ("t.csv", b"", ["line 1:", "header"]),
        ("t.csv", b"target_id\n", ["none in the file"]),
        ("t.csv", b"target_id,size\na,1\n", ["line 1:", "'size'", "target_name"]),
        ("t.csv", b"target_id,target_id\na,b\n", ["line 1:", "once"]),
        ("t.csv", b"target_id,param\na,1\nb\n", ["line 3:", "1 cells"]),
        ("t.csv", b"target_id,param\na,1\n\nb,{\n", ["line 4: param:", "not JSON"]),
        ("t.csv", b'target_id,param\na,"1\n', ["line 2:"]),
        ("t.csv", b"target_id\na\n\xff\n", ["UTF-8"]),
        ("t.csv", b"target_id\n" + b"x" * 256 + b"\n", ["line 2: target_id:"]),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_submitted(
    drumline: Terminal,
    gateway: RunningGateway,
    tmp_path: Path,
    name: str,
    content: bytes,
    words: list[str],
) -> None:
    before = drumline.data("batch", "list", "--limit", "1")
    path = tmp_path / name
    path.write_bytes(content)
    if words == ["none in the file"]:
        refuses(drumline(*SUBMIT, "--targets", str(path)), 2, *words)
    else:
        refuses(drumline(*SUBMIT, "--targets", str(path)), 2, str(path), *words)
    assert drumline.data("batch", "list", "--limit", "1") == before


def many(path: Path, lines: int, last: str = "") -> str:
    path.write_text("".join(f'{{"target_id": "t{i}"}}\n' for i in range(lines)) + last)
    return str(path)


def test_a_bad_line_in_a_later_chunk_discards_the_chunks_before_it(
    drumline: Terminal, gateway: RunningGateway, tmp_path: Path
) -> None:
    before = drumline.data("batch", "list", "--limit", "1")
    file = many(tmp_path / "t.jsonl", 12_000, last='{"target_id": []}\n')
    refuses(drumline(*SUBMIT, "--targets", file), 2, f"{file} line 12001: target_id:")
    assert drumline.data("batch", "list", "--limit", "1") == before
    assert gateway.world.dues() == [] or all(due.batch_id is None for due in gateway.world.dues())


def test_an_error_found_by_the_gateway_names_the_line_too(
    drumline: Terminal, gateway: RunningGateway, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"param": {"n": 1}}\n\n{"param": {"n": 1.5}}\n')
    line = ("batch", "submit", "june", "--type", "strict", "--targets", str(path))
    refuses(drumline(*line), 2, f"{path} line 3: param.n:", "integer")


def test_a_large_file_submitted_twice_with_one_request_id_is_one_batch(
    drumline: Terminal, gateway: RunningGateway, tmp_path: Path
) -> None:
    file = many(tmp_path / "t.jsonl", 11_000)
    line = (*SUBMIT, "--targets", file, "--request-id", "large")
    first = drumline.data(*line)
    assert first["tasks"] == 11_000
    assert drumline.data(*line) == first
    shown = drumline.data("batch", "show", str(first["batch_id"]))
    assert (shown["total"], shown["counts"]) == (11_000, {"pending": 11_000})
    gateway.world.check_laws()
    assert drumline("batch", "cancel", str(first["batch_id"])).code == 0


def test_csv_and_standard_input_are_read(
    drumline: Terminal, gateway: RunningGateway, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text('\ufefftarget_id,param\na,"{""n"": 1}"\nb,\n', encoding="utf-8")
    batch_id = drumline.data(*SUBMIT, "--targets", str(path), "--param", "7")["batch_id"]
    found = drumline.data("task", "list", "--batch", str(batch_id))["tasks"]
    assert isinstance(found, list)
    params = [drumline.data("task", "show", str(one["id"]))["param"] for one in found]
    assert params == [7, {"n": 1}]
    done = subprocess.run(
        [ENTRY_POINT, *SUBMIT, "--targets", "-", "--json"],
        input='{"target_id": "a"}\n',
        env=os.environ | gateway.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["tasks"] == 1
