"""Batches through the SDK: submitted in chunks or not at all, waited for, retried, rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumline import Client
from drumline.client.client import NotFinished, Target
from drumline.errors import Conflict, DrumlineError, NotFound, UnknownHandler, WrongUse
from tests.process.sdk_stack import WAIT, calls


def test_a_batch_of_targets_in_every_form(client: Client) -> None:
    batch = client.submit_batch(
        "forms",
        "t.about",
        targets=[
            "an id",
            {"target_id": "a dict", "target_name": "its name", "param": {1: (2, 3)}},
            Target(target_id="a Target", param=[None]),
        ],
        param="common",
        env="test",
        extra_info={"ticket": 7},
    )
    assert batch.wait(WAIT) == "success"
    assert batch.counts == {"success": 3}
    assert (batch.total, batch.finished, batch.details["env"]) == (3, True, "test")
    results = {task.result(1)["target"]: task.result(1) for task in batch.tasks()}
    about = ["forms", "test", {"ticket": 7}]
    assert results["an id"]["param"] == "common"
    assert results["a dict"] == {
        "target": "a dict",
        "name": "its name",
        "param": {"1": [2, 3]},
        "batch": about,
    }
    assert results["a Target"]["param"] == [None]


def test_a_long_stream_is_sent_in_chunks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    done = calls(client, monkeypatch)
    drawn = 0

    def stream() -> Iterator[str]:
        nonlocal drawn
        for n in range(12_001):
            drawn += 1
            # At most two chunks are read ahead of what has been sent.
            assert drawn <= 5000 * (done.count("batch.load") + 2)
            yield f"t-{n}"

    batch = client.submit_batch("stream", "demo.noop", targets=stream())
    assert done == ["batch.open", *["batch.load"] * 3, "batch.start"]
    assert batch.wait(WAIT) == "success"
    assert batch.total == 12_001


def test_large_targets_are_cut_by_their_size_in_bytes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = calls(client, monkeypatch)
    big = {"param": "x" * 1_000_000}
    batch = client.submit_batch("large", "demo.noop", targets=[big] * 20)
    assert done.count("batch.load") == 3
    assert batch.wait(WAIT) == "success"


def test_many_identical_tasks(client: Client) -> None:
    batch = client.submit_batch("equal", "demo.noop", count=5001, priority=9)
    assert batch.wait(WAIT) == "success"
    assert batch.total == 5001


def test_a_stream_that_fails_leaves_no_batch(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Exception):
        pass

    def stream() -> Iterator[str]:
        yield from map(str, range(15_000))
        raise Broken

    before = newest_batch(client)
    done = calls(client, monkeypatch)
    with pytest.raises(Broken):
        client.submit_batch("breaks", "demo.noop", targets=stream())
    assert done[-1] == "batch.discard"
    assert newest_batch(client) == before


def newest_batch(client: Client) -> int:
    found = client.call("batch.list", limit=1)["batches"]
    return int(found[0]["id"]) if found else 0


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"type": "no.such", "count": 1}, UnknownHandler, ["no.such"]),
        ({"type": "demo.noop"}, WrongUse, ["either targets or a count"]),
        ({"type": "demo.noop", "targets": ["a"], "count": 1}, WrongUse, ["either"]),
        ({"type": "demo.noop", "targets": []}, WrongUse, ["at least one target"]),
        ({"type": "demo.noop", "count": 0}, WrongUse, ["at least one target"]),
        ({"type": "demo.noop", "targets": "abc"}, WrongUse, ["a list or a generator", "'abc'"]),
        ({"type": "demo.noop", "targets": ["a", 7]}, WrongUse, ["target 1", "int"]),
        (
            {"type": "demo.noop", "targets": [{"id": "a"}]},
            WrongUse,
            ["target 0: id:", "unknown field"],
        ),
        ({"type": "demo.noop", "targets": [{"target_id": 7}]}, WrongUse, ["target 0", "target_id"]),
        ({"type": "demo.noop", "targets": [Target(target_id=7)]}, WrongUse, ["target_id"]),  # type: ignore[arg-type]
        ({"type": "demo.noop", "targets": [{"param": object()}]}, WrongUse, ["target 0", "object"]),
        ({"type": "demo.noop", "targets": [{"param": 2**70}]}, WrongUse, ["target 0"]),
        ({"type": "demo.noop", "targets": [{"param": "\udc80"}]}, WrongUse, ["target 0"]),
        (
            {"type": "demo.noop", "targets": [{"param": "x" * 10**7}]},
            WrongUse,
            ["target 0", "bytes"],
        ),
        ({"type": "demo.noop", "count": 1, "param": object()}, WrongUse, ["cannot be sent"]),
        ({"type": "demo.noop", "count": 1, "param": "x" * 2**25}, WrongUse, ["at most"]),
        ({"type": "demo.noop", "count": 1, "priority": 10}, WrongUse, ["priority"]),
        ({"type": "demo.noop", "count": 1, "timeout": -1}, WrongUse, ["timeout"]),
        ({"type": "example.switch_zone", "count": 1, "param": {}}, WrongUse, ["param.file"]),
    ],
)
def test_a_bad_submission_is_named_and_nothing_is_submitted(
    client: Client, arguments: dict[str, Any], kind: type[DrumlineError], words: list[str]
) -> None:
    before = newest_batch(client)
    with pytest.raises(kind) as caught:
        client.submit_batch("bad", **arguments)
    for word in words:
        assert word in str(caught.value)
    assert newest_batch(client) == before


def test_wait_raises_a_timeout_and_returns_after_cancel(client: Client, tmp_path: Path) -> None:
    batch = client.submit_batch("held", "t.gate", count=20, param=str(tmp_path / "gate"))
    with pytest.raises(TimeoutError) as caught:
        batch.wait(0.2)
    assert isinstance(caught.value, NotFinished)
    assert f"<Batch {batch.id}> is still " in str(caught.value)
    batch.cancel(force=True)
    assert batch.wait(WAIT) == "cancel"
    assert batch.counts == {"cancel": 20}
    with pytest.raises(Conflict, match="already"):
        batch.cancel()


def test_failed_tasks_are_retried_all_or_some(client: Client) -> None:
    batch = client.submit_batch("fails", "demo.fail", count=3)
    assert batch.wait(WAIT) == "fail"
    failed = [task.id for task in batch.tasks("fail")]
    assert len(failed) == 3
    assert list(batch.tasks("success")) == []
    assert batch.retry(failed[:1]) == 1
    assert batch.wait(WAIT) == "fail"
    assert batch.retry() == 3
    assert batch.wait(WAIT) == "fail"
    attempts = {task.id: task.refresh().details["attempt"] for task in batch.tasks()}
    assert attempts == {failed[0]: 3, failed[1]: 2, failed[2]: 2}


def test_a_batch_is_rolled_back(client: Client, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}" for n in range(5)]
    for file in files:
        file.write_text(f"old {file.name}")
    batch = client.submit_batch("notes", "t.note", targets=map(str, files), param="new")
    assert batch.wait(WAIT) == "success"
    assert {file.read_text() for file in files} == {"new"}
    batch.rollback()
    assert batch.wait(WAIT) == "rollback_success"
    assert [file.read_text() for file in files] == [f"old {file.name}" for file in files]


def test_an_unknown_batch_is_not_found(client: Client) -> None:
    with pytest.raises(NotFound, match="There is no batch 999999"):
        client.batch(999999).refresh()
