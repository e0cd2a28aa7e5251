"""Wrong command lines: one line that says what is wrong, the right exit code, no traceback."""

import time
from pathlib import Path

import pytest

from tests.acceptance.terminal import SUBMIT, RunningGateway, Terminal, refuses
from tests.store.world import REGION

# --- wrong use that is found without a gateway ---------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["nope"], ["'nope'"]),
        (["batsh"], ["Did you mean 'batch'?"]),
        (["batch", "shwo", "1"], ["drumline batch", "'shwo'", "Did you mean 'show'?"]),
        (["--nope"], ["--nope"]),
        (["batch", "show", "1", "--nope"], ["drumline batch show", "--nope"]),
        (["batch", "show"], ["'ID'"]),
        (["batch", "show", "1", "2"], ["2"]),
        (["batch", "show", "one"], ["'ID'", "'one'"]),
        (["batch", "show", "0"], ["'ID'", "0"]),
        (["batch", "show", "9" * 20], ["'ID'"]),
        (["batch", "list", "--status", "fine"], ["--status", "'fine'", "partial_fail"]),
        (["batch", "list", "--limit", "0"], ["--limit"]),
        (["batch", "submit"], ["NAME"]),
        (["batch", "submit", "june", "--count", "1"], ["--type"]),
        (["batch", "submit", "", "--type", "type", "--count", "1"], ["NAME", "1 to 255"]),
        (["batch", "submit", "x" * 256, "--type", "type", "--count", "1"], ["NAME"]),
        ([*SUBMIT], ["--targets", "--count"]),
        ([*SUBMIT, "--count", "1", "--targets", "f"], ["either"]),
        ([*SUBMIT, "--count", "0"], ["--count"]),
        ([*SUBMIT, "--count", "many"], ["--count", "'many'"]),
        ([*SUBMIT, "--count", "1", "--priority", "10"], ["--priority"]),
        ([*SUBMIT, "--count", "1", "--timeout", "0"], ["--timeout"]),
        ([*SUBMIT, "--count", "1", "--timeout", "nan"], ["--timeout", "nan"]),
        ([*SUBMIT, "--count", "1", "--timeout", "inf"], ["--timeout", "inf"]),
        ([*SUBMIT, "--count", "1", "--timeout", "soon"], ["--timeout", "'soon'"]),
        ([*SUBMIT, "--count", "1", "--param", "{"], ["--param", "not JSON"]),
        ([*SUBMIT, "--count", "1", "--param", "{'a': 1}"], ["--param", "not JSON"]),
        ([*SUBMIT, "--count", "1", "--param", "[" * 100_000], ["--param"]),
        ([*SUBMIT, "--count", "1", "--param", "1" * 30], ["--param", "64 bits"]),
        ([*SUBMIT, "--count", "1", "--extra", "x"], ["--extra", "not JSON"]),
        ([*SUBMIT, "--count", "1", "--env", "e" * 65], ["--env", "64"]),
        ([*SUBMIT, "--count", "1", "--request-id", ""], ["--request-id"]),
        ([*SUBMIT, "--count", "1", "--request-id", "r" * 49], ["--request-id", "48"]),
        ([*SUBMIT, "--targets", "missing.jsonl"], ["missing.jsonl", "No such file"]),
        ([*SUBMIT, "--targets", "."], [".", "directory"]),
        (["batch", "retry", "1", "--task", "x"], ["--task", "'x'"]),
        (["task", "schedule"], ["TYPE"]),
        (["task", "schedule", "t", "--at", "noon"], ["--at", "'noon'", "2030-01-31T12:00:00Z"]),
        (["task", "schedule", "t", "--at", "2030-01-01T00:00:00"], ["--at", "time zone"]),
        (["task", "schedule", "t", "--at", "1893456000000"], ["--at", "9999"]),
        (["task", "schedule", "t", "--in", "-1"], ["--in"]),
        (["task", "schedule", "t", "--in", "nan"], ["--in"]),
        (["task", "schedule", "t", "--in", "1", "--at", "0"], ["not both"]),
        (["task", "schedule", "t", "--instance", "i" * 127], ["--instance", "126"]),
        (["task", "schedule", "x" * 129], ["TYPE", "128"]),
        (["task", "list", "--status", "done"], ["--status", "'done'"]),
        (["task", "list", "--limit", "1001"], ["--limit"]),
        (["task", "reschedule", "1"], ["--at, --in or --priority"]),
        (["task", "reschedule", "1", "--at", "0", "--in", "0"], ["not both"]),
        (["worker", "drain"], ["NAME"]),
        (["completion", "powershell"], ["'powershell'", "fish"]),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_exit_code_2(
    drumline: Terminal, empty_run_dir: Path, line: list[str], words: list[str]
) -> None:
    refuses(drumline(*line), 2, *words)


@pytest.mark.parametrize("line", [[], ["batch"], ["task"], ["worker"], ["queue"], ["handlers"]])
def test_a_group_alone_shows_its_help(drumline: Terminal, line: list[str]) -> None:
    done = drumline(*line)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: drumline")


def test_a_wrong_setting_is_named(
    drumline: Terminal, empty_run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMLINE_WORKERS", "some")
    refuses(drumline("batch", "show", "1"), 2, "workers")
    monkeypatch.delenv("DRUMLINE_WORKERS")
    monkeypatch.setenv("DRUMLINE_RUN_DIR", "/" + "x" * 120)
    refuses(drumline("batch", "show", "1"), 2, "run_dir")


# --- no gateway ----------------------------------------------------------------------------------

NEEDS_GATEWAY = [
    [*SUBMIT, "--count", "3"],
    ["batch", "list"],
    ["batch", "show", "1"],
    ["batch", "cancel", "1", "--force"],
    ["batch", "retry", "1"],
    ["batch", "rollback", "1"],
    ["task", "schedule", "type"],
    ["task", "list"],
    ["task", "show", "1"],
    ["task", "reschedule", "1", "--in", "5"],
    ["task", "cancel", "1"],
    ["task", "retry", "1"],
    ["worker", "list"],
    ["worker", "drain", "worker-1"],
    ["worker", "kill", "worker-1"],
    ["queue", "show"],
    ["queue", "pause"],
    ["queue", "resume", "type"],
    ["handlers", "list"],
    ["handlers", "show", "type"],
]


@pytest.mark.parametrize("line", NEEDS_GATEWAY, ids=" ".join)
@pytest.mark.parametrize("json_too", [[], ["--json"]], ids=["", "json"])
def test_without_a_gateway_the_exit_code_is_3_within_a_second(
    drumline: Terminal, empty_run_dir: Path, line: list[str], json_too: list[str]
) -> None:
    began = time.monotonic()
    refuses(drumline(*line, *json_too), 3, str(empty_run_dir / "control.sock"), "is Drumline up?")
    assert time.monotonic() - began < 1


def test_a_socket_without_a_gateway_is_given_up_after_some_seconds(
    drumline: Terminal, empty_run_dir: Path
) -> None:
    import zmq

    with zmq.Context() as context:
        socket = context.socket(zmq.ROUTER)
        socket.bind(f"ipc://{empty_run_dir}/control.sock")
        # A hard link keeps the file when zmq removes it, as a kill would have.
        (empty_run_dir / "kept.sock").hardlink_to(empty_run_dir / "control.sock")
        socket.close(linger=0)
    (empty_run_dir / "kept.sock").rename(empty_run_dir / "control.sock")
    refuses(drumline("queue", "pause"), 3, "is Drumline up?", "--request-id")


# --- what the gateway refuses --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (["batch", "submit", "june", "--type", "unheard", "--count", "1"], 2, ["unheard", "type"]),
        ([*SUBMIT, "--count", "1", "--target-type", "moon"], 2, ["moon"]),
        ([*SUBMIT, "--count", "1", "--region", "mars"], 2, ["'mars'", f"'{REGION}'"]),
        (["batch", "submit", "j", "--type", "strict", "--count", "1"], 2, ["param"]),
        (["task", "schedule", "unheard"], 2, ["unheard"]),
        (["task", "schedule", "strict", "--param", '{"n": "1"}'], 2, ["param.n", "integer"]),
        (["task", "schedule", "\udcff"], 2, ["UTF-8"]),
        (["batch", "show", "9999999"], 4, ["no batch 9999999"]),
        (["batch", "watch", "9999999"], 4, ["no batch 9999999"]),
        (["batch", "cancel", "9999999"], 4, ["no batch 9999999"]),
        (["batch", "retry", "9999999"], 4, ["no batch 9999999"]),
        (["batch", "retry", "9999999", "--task", "1"], 4, ["no batch 9999999"]),
        (["batch", "rollback", "9999999"], 4, ["no batch 9999999"]),
        (["task", "show", "9999999"], 4, ["no task 9999999"]),
        (["task", "cancel", "9999999"], 4, ["no task 9999999"]),
        (["task", "retry", "9999999"], 4, ["no task 9999999"]),
        (["task", "reschedule", "9999999", "--in", "1"], 4, ["no task 9999999"]),
        (["worker", "drain", "worker-99"], 4, ["worker-99"]),
        (["worker", "kill", "worker-99"], 4, ["worker-99"]),
        (["handlers", "show", "unheard"], 4, ["unheard"]),
        (["queue", "pause", "unheard"], 2, ["unheard"]),
        (["queue", "resume", "type"], 5, ["type is not paused"]),
        (["queue", "show"], 3, ["dispatcher"]),
    ],
)  # fmt: skip
def test_an_error_of_the_gateway_is_one_line_with_its_exit_code(
    drumline: Terminal, gateway: RunningGateway, line: list[str], code: int, words: list[str]
) -> None:
    refuses(drumline(*line), code, *words)


def test_conflicts_are_exit_code_5(drumline: Terminal, gateway: RunningGateway) -> None:
    batch_id = str(drumline.data(*SUBMIT, "--count", "2")["batch_id"])
    refuses(drumline("batch", "retry", batch_id), 5, "no failed task")
    refuses(drumline("batch", "rollback", batch_id), 5, "no rollback")
    assert drumline("batch", "cancel", batch_id).code == 0
    refuses(drumline("batch", "cancel", batch_id), 5, "already cancelled")
    task_id = str(drumline.data("task", "schedule", "type", "--instance", "i")["task_id"])
    refuses(drumline("task", "schedule", "type", "--instance", "i"), 5, f"task {task_id}")
    refuses(drumline("task", "retry", task_id), 5, "only failed")
    assert drumline("task", "cancel", task_id).code == 0
    refuses(drumline("task", "cancel", task_id), 5, "already cancel")
