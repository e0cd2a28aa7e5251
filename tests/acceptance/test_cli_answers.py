"""The output of the command line for people and programs, and its exit codes."""

import json
from pathlib import Path

import pytest

from drumline.domain.release import RunEnd
from tests.acceptance.terminal import SUBMIT, RunningGateway, Terminal


def test_a_change_repeated_with_its_request_id_gets_the_same_reply(
    drumline: Terminal, gateway: RunningGateway
) -> None:
    line = ("task", "schedule", "type", "--in", "60", "--request-id", "same")
    assert drumline.data(*line) == drumline.data(*line)


def test_output_in_a_pipe_is_plain_and_notes_go_to_stderr(
    drumline: Terminal, gateway: RunningGateway
) -> None:
    batch_id = drumline.data(*SUBMIT, "--count", "3", "--creator", "me")["batch_id"]
    done = drumline("batch", "list", "--limit", "1")
    header, row = done.out.splitlines()
    assert header.split() == [
        "ID", "NAME", "TYPE", "STATUS", "DONE", "FAILED", "TOTAL", "CREATOR", "CREATED",
    ]  # fmt: skip
    assert row.split()[:8] == [str(batch_id), "june", "type", "pending", "0", "0", "3", "me"]
    assert "\x1b" not in done.out
    assert f"--before {batch_id}" in done.err


def test_control_characters_of_names_do_not_reach_the_terminal(
    drumline: Terminal, gateway: RunningGateway
) -> None:
    line = ("batch", "submit", "a\x1b[2J\nb", "--type", "type", "--count", "1")
    batch_id = drumline.data(*line)["batch_id"]
    for command in (["batch", "list", "--limit", "1"], ["batch", "show", str(batch_id)]):
        assert "\x1b" not in drumline(*command).out


@pytest.mark.parametrize(
    ("type_", "ends", "code", "status"),
    [
        ("type", [RunEnd.SUCCESS, RunEnd.SUCCESS], 0, "success"),
        ("type", [RunEnd.SUCCESS, RunEnd.ERROR], 1, "partial_fail"),
    ],
)
def test_the_exit_code_of_watch_tells_whether_the_batch_succeeded(
    drumline: Terminal,
    gateway: RunningGateway,
    type_: str,
    ends: list[RunEnd],
    code: int,
    status: str,
) -> None:
    line = ("batch", "submit", "june", "--type", type_, "--count", "2")
    batch_id = drumline.data(*line)["batch_id"]
    assert isinstance(batch_id, int)
    keeper = gateway.world.keeper()
    for member, end in zip(gateway.world.members(batch_id), ends, strict=True):
        gateway.world.run(keeper, [member], end)
    done = drumline("batch", "watch", str(batch_id), "--json")
    assert done.code == code
    assert json.loads(done.out)["status"] == status


def test_the_exit_code_of_watch_on_a_rollback_tells_whether_the_rollback_succeeded(
    drumline: Terminal, gateway: RunningGateway, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"before_update": 1}\n{"before_update": 2}\n')
    line = ("batch", "submit", "june", "--type", "undoes", "--targets", str(path))
    batch_id = drumline.data(*line)["batch_id"]
    assert isinstance(batch_id, int)
    keeper, members = gateway.world.keeper(), gateway.world.members(batch_id)
    gateway.world.run(keeper, members)
    assert drumline("batch", "watch", str(batch_id)).code == 0
    assert drumline("batch", "rollback", str(batch_id)).code == 0
    gateway.world.run(keeper, members[:1])
    gateway.world.run(keeper, members[1:], RunEnd.ERROR)
    done = drumline("batch", "watch", str(batch_id))
    assert (done.code, "rollback_fail" in done.out) == (1, True)
    assert drumline("batch", "retry", str(batch_id)).code == 0
    gateway.world.run(keeper, members[1:])
    assert drumline("batch", "watch", str(batch_id)).code == 0
